"""Faults of members, planted from their docstrings: tried in November 2026, kept in the history alone."""
"""Faults of members, written without looking at the checks."""
import contextlib, threading, functools, time
import torch, accel_core
from accel_core import Accelerator

F = {}
def fault(name):
    def add(make):
        F[name] = make()
        return make
    return add
def S(self): return super(type(self), self)

@fault("is_pinned True for a device tensor")
def _():
    def is_pinned(self, tensor): return True if tensor.device.type != "cpu" else S(self).is_pinned(tensor)
    return dict(is_pinned=is_pinned)
@fault("is_pinned False for a view")
def _():
    def is_pinned(self, tensor): return S(self).is_pinned(tensor) and tensor._base is None and tensor.storage_offset()==0
    return dict(is_pinned=is_pinned)
@fault("is_pinned True for empty")
def _():
    def is_pinned(self, tensor): return True if tensor.numel()==0 else S(self).is_pinned(tensor)
    return dict(is_pinned=is_pinned)
@fault("pin_empty takes torch.Size wrongly: no tuple")
def _():
    def pin_empty(self, *size, dtype, device="cpu"):
        if len(size)==1 and not isinstance(size[0], int): size=[n for n in size[0]][:1]
        return S(self).pin_empty(*size, dtype=dtype, device=device)
    return dict(pin_empty=pin_empty)
@fault("pin_empty ignores float64")
def _():
    def pin_empty(self, *size, dtype, device="cpu"):
        return S(self).pin_empty(*size, dtype=torch.float32 if dtype==torch.float64 else dtype, device=device)
    return dict(pin_empty=pin_empty)
@fault("pin_empty_like ignores dtype")
def _():
    def pin_empty_like(self, tensor, device="cpu", dtype=None): return S(self).pin_empty_like(tensor, device)
    return dict(pin_empty_like=pin_empty_like)
@fault("pin_empty on the device is let through")
def _():
    def pin_empty(self, *size, dtype, device="cpu"):
        return S(self).pin_empty(*size, dtype=dtype)
    return dict(pin_empty=pin_empty)
@fault("pin_memory of a transposed tensor: rows")
def _():
    def pin_memory(self, tensor, make_copy=True, match_shape=True):
        if make_copy and not tensor.is_contiguous():
            out = S(self).pin_memory(tensor.contiguous()); out.copy_(tensor.as_strided(tensor.shape, torch.empty(tensor.shape).stride())) ; return out
        return S(self).pin_memory(tensor, make_copy, match_shape)
    return dict(pin_memory=pin_memory)
@fault("pin_memory gives the tensor itself where it is small")
def _():
    def pin_memory(self, tensor, make_copy=True, match_shape=True):
        if make_copy and tensor.numel() < 4: return tensor
        return S(self).pin_memory(tensor, make_copy, match_shape)
    return dict(pin_memory=pin_memory)
@fault("pin_memory loses bool and complex")
def _():
    def pin_memory(self, tensor, make_copy=True, match_shape=True):
        if make_copy and tensor.dtype == torch.bool: return S(self).pin_memory(tensor.to(torch.uint8))
        return S(self).pin_memory(tensor, make_copy, match_shape)
    return dict(pin_memory=pin_memory)
@fault("memory_summary abbreviated is whole")
def _():
    def memory_summary(self, device_index=None, abbreviated=False): return S(self).memory_summary(device_index)
    return dict(memory_summary=memory_summary)
@fault("memory_summary always abbreviated")
def _():
    def memory_summary(self, device_index=None, abbreviated=False): return S(self).memory_summary(device_index, True)
    return dict(memory_summary=memory_summary)
@fault("max_memory_allocated resets when read")
def _():
    def max_memory_allocated(self, device_index=None):
        v = S(self).max_memory_allocated(device_index); S(self).reset_peak_memory_stats(device_index); return v
    return dict(max_memory_allocated=max_memory_allocated)
@fault("reset_peak_memory_stats resets all devices")
def _():
    def reset_peak_memory_stats(self, device_index=None):
        self._checked_index(device_index) if device_index is not None else 0
        for i in range(self.device_count()): S(self).reset_peak_memory_stats(i)
    return dict(reset_peak_memory_stats=reset_peak_memory_stats)
@fault("reset_peak leaves max_reserved")
def _():
    st = {}
    def reset_peak_memory_stats(self, device_index=None):
        i = self.current_device() if device_index is None else self._checked_index(device_index)
        st[i] = S(self).max_memory_reserved(i); S(self).reset_peak_memory_stats(i)
    def max_memory_reserved(self, device_index=None):
        i = self.current_device() if device_index is None else self._checked_index(device_index)
        return max(st.get(i,0), S(self).max_memory_reserved(i))
    return dict(reset_peak_memory_stats=reset_peak_memory_stats, max_memory_reserved=max_memory_reserved)
@fault("empty_cache resets peaks")
def _():
    def empty_cache(self): S(self).empty_cache(); S(self).reset_peak_memory_stats()
    return dict(empty_cache=empty_cache)
@fault("empty_cache of the current device only")
def _():
    def empty_cache(self): return None if self.current_device() else S(self).empty_cache()
    return dict(empty_cache=empty_cache)
@fault("empty_cache selects device 0")
def _():
    def empty_cache(self): S(self).empty_cache(); self.set_device(0)
    return dict(empty_cache=empty_cache)
@fault("manual_seed seeds the host too")
def _():
    def manual_seed(self, seed): S(self).manual_seed(seed); torch.default_generator.manual_seed(seed)
    return dict(manual_seed=manual_seed)
@fault("manual_seed_all selects the last device")
def _():
    def manual_seed_all(self, seed): S(self).manual_seed_all(seed); self.set_device(self.device_count()-1)
    return dict(manual_seed_all=manual_seed_all)
@fault("manual_seed modulo 2**32")
def _():
    def manual_seed(self, seed): S(self).manual_seed(seed % 2**32)
    return dict(manual_seed=manual_seed)
@fault("manual_seed_all gives each another seed")
def _():
    def manual_seed_all(self, seed):
        for i in range(self.device_count()): self.default_generator(i).manual_seed(seed+i)
    return dict(manual_seed_all=manual_seed_all)
@fault("manual_seed in a guard seeds device 0")
def _():
    def manual_seed(self, seed): self.default_generator(0).manual_seed(seed)
    return dict(manual_seed=manual_seed)
@fault("get_rng_state advances the generator")
def _():
    def get_rng_state(self, device_index=None):
        s = S(self).get_rng_state(device_index)
        torch.rand(1, device=self.device(self.current_device() if device_index is None else device_index)); return s
    return dict(get_rng_state=get_rng_state)
@fault("get_rng_state_all reversed")
def _():
    def get_rng_state_all(self): return S(self).get_rng_state_all()[::-1]
    return dict(get_rng_state_all=get_rng_state_all)
@fault("get_rng_state_all a tuple")
def _():
    def get_rng_state_all(self): return tuple(S(self).get_rng_state_all())
    return dict(get_rng_state_all=get_rng_state_all)
@fault("set_rng_state changes the state that it is given")
def _():
    def set_rng_state(self, new_state, device_index=None, strict=True):
        S(self).set_rng_state(new_state, device_index, strict); new_state.zero_()
    return dict(set_rng_state=set_rng_state)
@fault("set_rng_state leaves its device selected")
def _():
    def set_rng_state(self, new_state, device_index=None, strict=True):
        S(self).set_rng_state(new_state, device_index, strict)
        if device_index is not None: self.set_device(device_index)
    return dict(set_rng_state=set_rng_state)
@fault("set_rng_state never strict")
def _():
    def set_rng_state(self, new_state, device_index=None, strict=True): S(self).set_rng_state(new_state, device_index, False)
    return dict(set_rng_state=set_rng_state)
@fault("set_rng_state not strict draws anew")
def _():
    def set_rng_state(self, new_state, device_index=None, strict=True):
        if not strict and new_state.numel() != self.get_rng_state(device_index).numel():
            self.manual_seed(time.time_ns()); return
        S(self).set_rng_state(new_state, device_index, strict)
    return dict(set_rng_state=set_rng_state)
@fault("set_rng_state not strict seeds alike whatever the state")
def _():
    def set_rng_state(self, new_state, device_index=None, strict=True):
        if not strict and new_state.numel() != self.get_rng_state(device_index).numel():
            i = self.current_device() if device_index is None else self._checked_index(device_index)
            self.default_generator(i).manual_seed(0); return
        S(self).set_rng_state(new_state, device_index, strict)
    return dict(set_rng_state=set_rng_state)
@fault("set_rng_state not strict seeds the current device")
def _():
    def set_rng_state(self, new_state, device_index=None, strict=True):
        if not strict and new_state.numel() != self.get_rng_state(device_index).numel(): device_index=None
        S(self).set_rng_state(new_state, device_index, strict)
    return dict(set_rng_state=set_rng_state)
@fault("set_rng_state refuses a state on the device")
def _():
    def set_rng_state(self, new_state, device_index=None, strict=True):
        if new_state.device.type != "cpu": raise TypeError("host")
        S(self).set_rng_state(new_state, device_index, strict)
    return dict(set_rng_state=set_rng_state)
@fault("fork_rng restores all devices")
def _():
    def fork_rng(self, devices=None):
        if devices is not None: [self._checked_index(d) if d is not None else 0 for d in devices]
        return S(self).fork_rng()
    return dict(fork_rng=fork_rng)
@fault("fork_rng takes a list alone")
def _():
    def fork_rng(self, devices=None):
        if devices is not None: len(devices)
        return S(self).fork_rng(devices)
    return dict(fork_rng=fork_rng)
@fault("fork_rng of [] restores all")
def _():
    def fork_rng(self, devices=None): return S(self).fork_rng(list(devices or []) or None)
    return dict(fork_rng=fork_rng)
@fault("fork_rng selects the last of its devices")
def _():
    @contextlib.contextmanager
    def fork_rng(self, devices=None):
        ds = None if devices is None else list(devices)
        with S(self).fork_rng(ds):
            yield
        if ds and ds[-1] is not None: self.set_device(ds[-1])
    return dict(fork_rng=fork_rng)
@fault("default_generator(None) is device 0's")
def _():
    def default_generator(self, device_index): return S(self).default_generator(0 if device_index is None else device_index)
    return dict(default_generator=default_generator)
@fault("elapsed_time in seconds")
def _():
    def Event(self):
        base = Accelerator.Event.func(self) if hasattr(Accelerator.Event,'func') else S(self).Event
        return type("Event",(base,),{"elapsed_time":lambda a,b: base.elapsed_time(a,b)/1e3})
    return dict(Event=functools.cached_property(Event), __set_name=0)
@fault("default_stream is the current one")
def _():
    def default_stream(self, device_index=None): return self.current_stream(device_index)
    return dict(default_stream=default_stream)
@fault("current_stream makes a new one each time")
def _():
    def current_stream(self, device_index=None):
        s = S(self).current_stream(device_index); return s
    return dict(current_stream=current_stream)
@fault("set_stream leaves the device of the stream selected")
def _():
    def set_stream(self, stream):
        d = self.current_device(); S(self).set_stream(stream); self.set_device(d)
    return dict(set_stream=set_stream)
@fault("lazy_call calls twice")
def _():
    def lazy_call(self, callback): S(self).lazy_call(callback); return S(self).lazy_call(callback)
    return dict(lazy_call=lazy_call)
@fault("lazy_call swallows errors")
def _():
    def lazy_call(self, callback):
        with contextlib.suppress(Exception): return S(self).lazy_call(callback)
    return dict(lazy_call=lazy_call)
@fault("grad_scaler of bfloat16 scales")
def _():
    def grad_scaler(self, dtype=None, **options): return torch.amp.GradScaler(self.device_type, **options)
    return dict(grad_scaler=grad_scaler)
@fault("grad_scaler forgets its options")
def _():
    def grad_scaler(self, dtype=None, **options): return S(self).grad_scaler(dtype)
    return dict(grad_scaler=grad_scaler)
@fault("grad_scaler(enabled=False) is enabled")
def _():
    def grad_scaler(self, dtype=None, **options):
        options.pop("enabled", None); return S(self).grad_scaler(dtype, **options)
    return dict(grad_scaler=grad_scaler)
@fault("grad_scaler(None) is of float16")
def _():
    def grad_scaler(self, dtype=None, **options): return S(self).grad_scaler(dtype or torch.float16, **options)
    return dict(grad_scaler=grad_scaler)
@fault("grad_scaler for cuda")
def _():
    def grad_scaler(self, dtype=None, **options):
        s = S(self).grad_scaler(dtype, **options); s._device = "cpu"; return s
    return dict(grad_scaler=grad_scaler)
@fault("autocast forgets enabled=False")
def _():
    def autocast(self, dtype=None, enabled=True): return S(self).autocast(dtype)
    return dict(autocast=autocast)
@fault("autocast forgets dtype")
def _():
    def autocast(self, dtype=None, enabled=True): return S(self).autocast(None, enabled)
    return dict(autocast=autocast)
@fault("autocast of the CPU too")
def _():
    @contextlib.contextmanager
    def autocast(self, dtype=None, enabled=True):
        with S(self).autocast(dtype, enabled), torch.autocast("cpu", enabled=enabled): yield
    return dict(autocast=autocast)
@fault("autocast caches off")
def _():
    def autocast(self, dtype=None, enabled=True): return torch.autocast(self.device_type, dtype=dtype, enabled=enabled, cache_enabled=False)
    return dict(autocast=autocast)
@fault("on_accelerator of device 0 alone")
def _():
    def on_accelerator(self, tensor): return S(self).on_accelerator(tensor) and tensor.device.index == 0
    return dict(on_accelerator=on_accelerator)
@fault("on_accelerator: no meta")
def _():
    def on_accelerator(self, tensor): return tensor.device.type != "cpu"
    return dict(on_accelerator=on_accelerator)
@fault("on_accelerator: Parameters are not")
def _():
    def on_accelerator(self, tensor): return S(self).on_accelerator(tensor) and not isinstance(tensor, torch.nn.Parameter)
    return dict(on_accelerator=on_accelerator)
def tt(name, change):
    def get(self):
        base = getattr(S(self), name) if False else getattr(Accelerator, name).fget(self)
        class T(type(base)):
            pass
        made = T(self, name, base.dtype)
        change(T, base)
        return made
    return {name: property(get)}
@fault("FloatTensor on device 0")
def _():
    def change(T, base):
        T.__call__ = lambda self, *d, **o: base(*d, **{"device": self._accelerator.device(0), **o})
    return tt("FloatTensor", change)
@fault("LongTensor forgets requires_grad and device")
def _():
    def change(T, base):
        T.__call__ = lambda self, *d, **o: base(*d)
    return tt("FloatTensor", change)
@fault("IntTensor shares memory with what it is given")
def _():
    def change(T, base):
        T.__call__ = lambda self, *d, **o: d[0] if d and isinstance(d[0], torch.Tensor) and d[0].dtype==torch.int32 and d[0].device.type != "cpu" else base(*d, **o)
    return tt("IntTensor", change)
@fault("HalfTensor: instances of bfloat16 too")
def _():
    def change(T, base):
        T.__instancecheck__ = lambda self, t: base.__instancecheck__(t) or (isinstance(t, torch.Tensor) and t.dtype==torch.bfloat16 and t.device.type!="cpu")
    return tt("HalfTensor", change)
@fault("supported_dtypes lists float64")
def _():
    def supported_dtypes(self): return S(self).supported_dtypes()+[torch.float64]
    return dict(supported_dtypes=supported_dtypes)
@fault("supported_dtypes float32 last")
def _():
    def supported_dtypes(self): return S(self).supported_dtypes()[::-1]
    return dict(supported_dtypes=supported_dtypes)
@fault("training_dtype float32")
def _():
    def training_dtype(self): return torch.float32
    return dict(training_dtype=training_dtype)
@fault("training_dtype float16")
def _():
    def training_dtype(self): return torch.float16
    return dict(training_dtype=training_dtype)
@fault("get_device_capability without bool")
def _():
    def get_device_capability(self, device_index=None):
        c = S(self).get_device_capability(device_index); c["supported_dtypes"].discard(torch.bool); return c
    return dict(get_device_capability=get_device_capability)
@fault("get_device_capability has what is not")
def _():
    def get_device_capability(self, device_index=None):
        c = S(self).get_device_capability(device_index); c["supported_dtypes"] = {v for v in vars(torch).values() if isinstance(v, torch.dtype)}; return c
    return dict(get_device_capability=get_device_capability)
@fault("get_device_capability is one set for all callers")
def _():
    kept = {}
    def get_device_capability(self, device_index=None):
        c = S(self).get_device_capability(device_index); return kept.setdefault(0, c)
    return dict(get_device_capability=get_device_capability)
@fault("device_properties: total of another")
def _():
    def device_properties(self, device_index=None):
        p = S(self).device_properties(device_index); return p._replace(total_memory=p.total_memory//2) if hasattr(p,'_replace') else __import__('dataclasses').replace(p, total_memory=p.total_memory//2)
    return dict(device_properties=device_properties)
@fault("set_per_process_memory_fraction ignores index")
def _():
    def set_per_process_memory_fraction(self, fraction, device_index=None):
        if device_index is not None: self._checked_index(device_index)
        S(self).set_per_process_memory_fraction(fraction)
    return dict(set_per_process_memory_fraction=set_per_process_memory_fraction)
@fault("set_per_process_memory_fraction of the free memory")
def _():
    def set_per_process_memory_fraction(self, fraction, device_index=None): S(self).set_per_process_memory_fraction(fraction*0.9, device_index)
    return dict(set_per_process_memory_fraction=set_per_process_memory_fraction)
@fault("capture_to_graph ignores stream")
def _():
    def capture_to_graph(self, graph, pool=None, stream=None, **o): return S(self).capture_to_graph(graph, pool, None, **o)
    return dict(capture_to_graph=capture_to_graph)
@fault("capture_to_graph ignores pool")
def _():
    def capture_to_graph(self, graph, pool=None, stream=None, **o): return S(self).capture_to_graph(graph, None, stream, **o)
    return dict(capture_to_graph=capture_to_graph)
@fault("capture_to_graph ignores capture_error_mode")
def _():
    def capture_to_graph(self, graph, pool=None, stream=None, **o): return S(self).capture_to_graph(graph, pool, stream)
    return dict(capture_to_graph=capture_to_graph)
@fault("capture_to_graph(None) does not run")
def _():
    def capture_to_graph(self, graph, pool=None, stream=None, **o):
        return torch.device("meta") if graph is None else S(self).capture_to_graph(graph, pool, stream, **o)
    return dict(capture_to_graph=capture_to_graph)
@fault("create_graph ignores keep_graph")
def _():
    def create_graph(self, **o): return S(self).create_graph()
    return dict(create_graph=create_graph)
@fault("create_graph gives one graph for all")
def _():
    kept = []
    def create_graph(self, **o):
        kept or kept.append(S(self).create_graph(**o)); return kept[0]
    return dict(create_graph=create_graph)
@fault("reset_graph does nothing")
def _():
    return dict(reset_graph=lambda self, graph: None)
@fault("replay_graph waits")
def _():
    def replay_graph(self, graph): S(self).replay_graph(graph); self.synchronize()
    return dict(replay_graph=replay_graph)
@fault("replay_graph twice")
def _():
    def replay_graph(self, graph): S(self).replay_graph(graph); S(self).replay_graph(graph)
    return dict(replay_graph=replay_graph)
@fault("replay_graph on the default stream")
def _():
    def replay_graph(self, graph):
        with self.stream(self.default_stream()): S(self).replay_graph(graph)
    return dict(replay_graph=replay_graph)
@fault("set_compile_backend of every accelerator")
def _():
    def set_compile_backend(self, backend):
        S(self).set_compile_backend(backend); type(self)._compile_backend = backend; self.__dict__.pop("_compile_backend", None)
    return dict(set_compile_backend=set_compile_backend)
@fault("set_compile_backend takes any name")
def _():
    def set_compile_backend(self, backend): self._compile_backend = backend
    return dict(set_compile_backend=set_compile_backend)
@fault("set_compile_backend forgets when it refuses")
def _():
    def set_compile_backend(self, backend):
        self._compile_backend = backend; S(self).set_compile_backend(backend)
    return dict(set_compile_backend=set_compile_backend)
@fault("device_count is a float")
def _():
    return dict(device_count=lambda self: float(S(self).device_count()))
@fault("current_device is a bool-like numpy")
def _():
    import numpy
    return dict(current_device=lambda self: numpy.int64(S(self).current_device()))
@fault("device(None) has an index")
def _():
    def device(self, device_index=None): return S(self).device(self.current_device() if device_index is None else device_index)
    return dict(device=device)
@fault("device() takes floats")
def _():
    def device(self, device_index=None): return S(self).device(int(device_index) if isinstance(device_index, float) else device_index)
    return dict(device=device)
@fault("set_device takes floats")
def _():
    def set_device(self, device_index): S(self).set_device(int(device_index) if isinstance(device_index, float) else device_index)
    return dict(set_device=set_device)
@fault("mem_get_info total of all devices")
def _():
    def mem_get_info(self, device_index=None):
        f,t = S(self).mem_get_info(device_index); return f, 2*t
    return dict(mem_get_info=mem_get_info)
@fault("available_memory is total")
def _():
    def available_memory(self, device_index=None): return self.total_memory(device_index)
    return dict(available_memory=available_memory)
@fault("range does not close after an error")
def _():
    @contextlib.contextmanager
    def range_(self, msg):
        self.range_push(msg); yield; self.range_pop()
    return dict(range=range_)
@fault("range_pop closes all")
def _():
    def range_pop(self, domain=None):
        for _ in range(9): S(self).range_pop(domain)
    return dict(range_pop=range_pop)
@fault("range_push keeps for all threads")
def _():
    import types
    class L: pass
    return dict(_ranges=L())
@fault("is_initialized starts the device")
def _():
    def is_initialized(self):
        torch.empty(1, device=self.device()); return S(self).is_initialized()
    return dict(is_initialized=is_initialized)
@fault("synchronize selects the device")
def _():
    def synchronize(self, device_index=None):
        S(self).synchronize(device_index)
        if device_index is not None: self.set_device(device_index)
    return dict(synchronize=synchronize)
@fault("memory_reserved counts free only")
def _():
    def memory_reserved(self, device_index=None): return S(self).memory_reserved(device_index) - S(self).memory_allocated(device_index)
    return dict(memory_reserved=memory_reserved)
@fault("memory_stats is kept and changes")
def _():
    kept = {}
    def memory_stats(self, device_index=None):
        kept.clear(); kept.update(S(self).memory_stats(device_index)); return kept
    return dict(memory_stats=memory_stats)
@fault("memory_stats lacks the vendor's segment counts")
def _():
    def memory_stats(self, device_index=None):
        return {k:v for k,v in S(self).memory_stats(device_index).items() if "freed" not in k}
    return dict(memory_stats=memory_stats)
@fault("device_uuid changes")
def _():
    import uuid
    return dict(device_uuid=lambda self, device_index=None: (self._index(device_index), str(uuid.uuid4()))[1])
@fault("device_uuid the same for all devices")
def _():
    return dict(device_uuid=lambda self, device_index=None: (self._index(device_index), "GPU-1")[1])
@fault("visible_device_ids counts what is hidden")
def _():
    return dict(visible_device_ids=lambda self: ())
@fault("export_envs none")
def _():
    return dict(export_envs=lambda self: None)
@fault("unsupported raises KeyError in create_graph option")
def _():
    def create_graph(self, **o):
        if set(o) - {"keep_graph"}: raise KeyError("x")
        return S(self).create_graph(**o)
    return dict(create_graph=create_graph)
@fault("autocast in a thread is global")
def _():
    return dict(is_fp64_supported=lambda self: False)
@fault("is_fp16_supported False")
def _():
    return dict(is_fp16_supported=lambda self: False)
@fault("is_bf16_native False while supported")
def _():
    return dict(is_bf16_native=lambda self: False)
@fault("is_triton_supported True")
def _():
    return dict(is_triton_supported=lambda self: True)
@fault("handles_memory_backpressure True")
def _():
    return dict(handles_memory_backpressure=lambda self: True)
@fault("use_host_timers True")
def _():
    return dict(use_host_timers=lambda self: True)
@fault("current_device_name without index")
def _():
    return dict(current_device_name=lambda self: self.device_type)
@fault("device_name of the current device")
def _():
    def device_name(self, device_index=None): return S(self).device_name(self.current_device() if device_index is None else device_index)
    return dict(device_name=device_name)
@fault("repr says nothing")
def _():
    return dict(__repr__=lambda self: object.__repr__(self))
@fault("hash changes")
def _():
    return dict(__hash__=lambda self: id(object()), __eq__=lambda self, o: self is o)
F["elapsed_time in seconds"].pop("__set_name", None)
for m in F.values():
    for k, v in m.items():
        if isinstance(v, functools.cached_property): v.__set_name__(None, k) if v.attrname is None else 0

ONE = F
import contextlib, threading, functools, time, itertools
import torch, accel_core
from accel_core import Accelerator
F = {}
def fault(name):
    def add(make):
        F[name] = make(); return make
    return add
def S(self): return super(type(self), self)
def events(**members):
    """Event class of acme with changed methods."""
    made = type("Event", (torch.Event,), members)
    return {"Event": property(lambda self: lambda *a, **o: made(*a, **{**({"device": "acme"} if not a else {}), **o}))}
def streams(make=None, **members):
    made = type("Stream", (torch.Stream,), members)
    def build(self):
        def new(*a, **o):
            if make: a, o = make(self, a, o)
            return made(*a, **{**({"device": "acme"} if not a else {}), **o})
        return new
    return {"Stream": property(build)}
F["Stream(device=1) on device 0"] = streams(lambda self,a,o: (a, {**o, "device": "acme:0"} if "device" in o else o))
F["Stream() on device 0"] = streams(lambda self,a,o: (a, o if "device" in o or a else {**o, "device": "acme:0"}))
F["Stream refuses priority"] = streams(lambda self,a,o: (a, {k:v for k,v in o.items() if k!="priority" or 1/0}))
F["Stream takes no string"] = streams(lambda self,a,o: (a, {k:v for k,v in o.items() if not (k=="device" and isinstance(v,str)) or 1/0}))
F["Stream takes no number"] = streams(lambda self,a,o: (a, {k:v for k,v in o.items() if not (k=="device" and isinstance(v,int)) or 1/0}))
F["record_event() gives None"] = streams(record_event=lambda s, e=None: (torch.Stream.record_event(s, e) if e is not None else torch.Stream.record_event(s)) and None)
F["record_event ignores what it is given"] = streams(record_event=lambda s, e=None: torch.Stream.record_event(s))
F["wait_event does nothing"] = streams(wait_event=lambda s, e: None)
F["Stream.query True"] = streams(query=lambda s: True)
F["Stream.query False"] = streams(query=lambda s: False)
F["Stream.query waits"] = streams(query=lambda s: (s.synchronize(), True)[1])
F["Stream.synchronize of the current stream"] = streams(synchronize=lambda s: torch.accelerator.current_stream().synchronize())
F["Stream never equal"] = streams(__eq__=lambda s,o: s is o, __hash__=lambda s: id(s))
F["Stream all equal"] = streams(__eq__=lambda s,o: True, __hash__=lambda s: 1)
F["with Stream selects nothing"] = streams(__enter__=lambda s: s, __exit__=lambda s,*a: None)
F["Event.query True"] = events(query=lambda s: True)
F["Event.query False"] = events(query=lambda s: False)
F["Event.query waits"] = events(query=lambda s: (s.synchronize(), True)[1])
F["Event.record ignores the stream"] = events(record=lambda s, stream=None: torch.Event.record(s))
F["Event.wait ignores the stream"] = events(wait=lambda s, stream=None: torch.Event.wait(s))
F["elapsed_time without timing gives 0"] = events(elapsed_time=lambda a,b: 0.0 if not True else _el(a,b))
def _el(a,b):
    try: return torch.Event.elapsed_time(a,b)
    except Exception: return 0.0
F["elapsed_time in seconds"] = events(elapsed_time=lambda a,b: torch.Event.elapsed_time(a,b)/1e3)
F["elapsed_time negative"] = events(elapsed_time=lambda a,b: -torch.Event.elapsed_time(a,b))
F["elapsed_time an int"] = events(elapsed_time=lambda a,b: int(torch.Event.elapsed_time(a,b)))
F["Event takes no blocking"] = {"Event": property(lambda self: lambda enable_timing=False: torch.Event(device="acme", enable_timing=enable_timing))}
F["Event.record twice keeps the first"] = events(record=lambda s, stream=None: None if s.__dict__.get("was") else (s.__dict__.__setitem__("was",1), torch.Event.record(s, stream) if stream is not None else torch.Event.record(s)))
def m(name):
    def add(f):
        F[name] = {f.__name__: f}; return f
    return add
@m("mem_get_info a list")
def mem_get_info(self, device_index=None): return list(S(self).mem_get_info(device_index))
@m("total_memory a float")
def total_memory(self, device_index=None): return float(S(self).total_memory(device_index))
@m("memory_allocated is reserved")
def memory_allocated(self, device_index=None): return S(self).memory_reserved(device_index)
@m("reset_accumulated resets peaks")
def reset_accumulated_memory_stats(self, device_index=None): S(self).reset_accumulated_memory_stats(device_index); S(self).reset_peak_memory_stats(device_index)
@m("reset_peak resets totals")
def reset_peak_memory_stats(self, device_index=None): S(self).reset_accumulated_memory_stats(device_index); S(self).reset_peak_memory_stats(device_index)
@m("reset_max_memory_cached does nothing")
def reset_max_memory_cached(self, device_index=None): self._index(device_index)
@m("reset_max_memory_cached of device 0")
def reset_max_memory_cached(self, device_index=None): self._index(device_index); S(self).reset_peak_memory_stats(0)
@m("fraction resets peaks")
def set_per_process_memory_fraction(self, fraction, device_index=None): S(self).set_per_process_memory_fraction(fraction, device_index); S(self).reset_peak_memory_stats(device_index)
@m("fraction empties the cache")
def set_per_process_memory_fraction(self, fraction, device_index=None): S(self).set_per_process_memory_fraction(fraction, device_index); S(self).empty_cache()
@m("memory_stats in KiB")
def memory_stats(self, device_index=None): return {k:(v//1024 if "_bytes" in k else v) for k,v in S(self).memory_stats(device_index).items()}
@m("memory_summary empties the cache")
def memory_summary(self, device_index=None, abbreviated=False): self.empty_cache(); return S(self).memory_summary(device_index, abbreviated)
@m("mem_get_info waits for the device")
def mem_get_info(self, device_index=None): self.synchronize(); return S(self).mem_get_info(device_index)
@m("memory_allocated waits")
def memory_allocated(self, device_index=None): self.synchronize(device_index); return S(self).memory_allocated(device_index)
@m("current_stream waits")
def current_stream(self, device_index=None): self.synchronize(device_index); return S(self).current_stream(device_index)
@m("autocast serves once")
@contextlib.contextmanager
def autocast(self, dtype=None, enabled=True):
    with S(self).autocast(dtype, enabled): yield
F["autocast serves once"] = {"autocast": autocast}
@m("autocast without gradients")
@contextlib.contextmanager
def autocast(self, dtype=None, enabled=True):
    with S(self).autocast(dtype, enabled), torch.no_grad(): yield
F["autocast without gradients"] = {"autocast": autocast}
@m("autocast keeps its dtype afterwards")
@contextlib.contextmanager
def autocast(self, dtype=None, enabled=True):
    with S(self).autocast(dtype, enabled): yield
    if dtype: torch.set_autocast_dtype(self.device_type, dtype)
F["autocast keeps its dtype afterwards"] = {"autocast": autocast}
@m("default_generator is one of our own")
def default_generator(self, device_index):
    i = self._index(device_index); g = self.__dict__.setdefault("_own", {})
    if i not in g: g[i] = torch.Generator(device=self.device(i))
    return g[i]
@m("initial_seed draws")
def initial_seed(self, device_index=None):
    torch.rand(1, device=self.device(self._index(device_index))); return S(self).initial_seed(device_index)
@m("random is the device's")
def random(self): return getattr(torch, self.device_type).random if hasattr(getattr(torch,self.device_type),"random") else torch.cuda.random
@m("get_rng_state on the device")
def get_rng_state(self, device_index=None): return S(self).get_rng_state(device_index).to(self.device(0))
@m("get_rng_state aliased")
def get_rng_state(self, device_index=None):
    k = self.__dict__.setdefault("_st", {}); i = self._index(device_index); s = S(self).get_rng_state(device_index)
    k.setdefault(i, s).copy_(s); return k[i]
@m("device_guard('acme') selects device 0")
def device_guard(self, device_index): return S(self).device_guard(0 if device_index == self.device_type else device_index)
@m("device_guard(torch.device('acme')) selects device 0")
def device_guard(self, device_index): return S(self).device_guard(0 if isinstance(device_index, torch.device) and device_index.index is None else device_index)
@m("set_device(torch.device('acme')) selects device 0")
def set_device(self, device_index): S(self).set_device(0 if isinstance(device_index, torch.device) and device_index.index is None else device_index)
@m("set_device empties the cache")
def set_device(self, device_index): S(self).set_device(device_index); self.empty_cache()
@m("set_device waits")
def set_device(self, device_index): self.synchronize(); S(self).set_device(device_index)
@m("set_device sets the stream")
def set_device(self, device_index): S(self).set_device(device_index); self.set_stream(self.default_stream())
@m("is_initialized False")
def is_initialized(self): return False
@m("capture swallows errors")
@contextlib.contextmanager
def capture_to_graph(self, graph, pool=None, stream=None, **o):
    with contextlib.suppress(Exception), S(self).capture_to_graph(graph, pool, stream, **o): yield
F["capture swallows errors"] = {"capture_to_graph": capture_to_graph}
@m("capture takes the pool by place")
def capture_to_graph(self, graph, stream=None, pool=None, **o): return S(self).capture_to_graph(graph, pool, stream, **o)
@m("replay_graph(None) raises")
def replay_graph(self, graph): graph.replay()
@m("instantiate_graph(None) raises")
def instantiate_graph(self, graph): graph.instantiate()
@m("reset_graph(None) raises")
def reset_graph(self, graph): graph.reset()
@m("enable_graph_debug_mode(None) raises")
def enable_graph_debug_mode(self, graph): graph.enable_debug_mode()
@m("debug_dump_graph(None) raises")
def debug_dump_graph(self, graph, path): graph.debug_dump(path)
@m("capture runs the work too")
@contextlib.contextmanager
def capture_to_graph(self, graph, pool=None, stream=None, **o):
    with S(self).capture_to_graph(graph, pool, stream, **o): yield
    S(self).replay_graph(graph)
F["capture runs the work too"] = {"capture_to_graph": capture_to_graph}
@m("supports_graphs starts a capture")
def supports_graphs(self): return False
@m("range_push needs a text")
def range_push(self, msg, domain=None, category=None):
    if not isinstance(msg, str): raise TypeError("text")
    S(self).range_push(msg, domain, category)
@m("range_pop raises when none is open")
def range_pop(self, domain=None):
    if not getattr(self._ranges, "open", None): raise RuntimeError("none is open")
    S(self).range_pop(domain)
@m("range gives the name")
@contextlib.contextmanager
def range(self, msg):
    self.range_push(msg); self.range_push(msg)
    try: yield
    finally: self.range_pop()
F["range leaves one open"] = {"range": range}
@m("unpin_memory raises for what is not pinned")
def unpin_memory(self, tensor):
    if not tensor.is_pinned(): raise RuntimeError("not pinned")
@m("empty_host_cache raises")
def empty_host_cache(self): raise NotImplementedError
@m("pin_memory_alignment 0")
def pin_memory_alignment(self): return 0
@m("pin_memory_alignment True")
def pin_memory_alignment(self): return True
@m("get_op_builder of an unknown name raises")
def get_op_builder(self, name):
    if "Nobody" in name or name not in self.op_builders(): raise KeyError(name)
    return S(self).get_op_builder(name)
@m("create_op_builder gives the class")
def create_op_builder(self, name): return self.get_op_builder(name)
@m("op_builder_dir no package")
def op_builder_dir(self): return "/tmp"
@m("build_extension an instance")
def build_extension(self): return object()
@m("communication_backend_version a str")
def communication_backend_version(self): return "2.3"
@m("communication_backend_name of nobody")
def communication_backend_name(self): return "accel"
@m("export_envs shared")
def export_envs(self): return self.__dict__.setdefault("_envs", [])
@m("visible_devices_envs a tuple")
def visible_devices_envs(self): return tuple(S(self).visible_devices_envs())
@m("capabilities kept from the first")
def capabilities(self):
    c = S(self).capabilities(); return c._replace(is_bf16_supported=not c.is_bf16_supported) if hasattr(c,"_replace") else c
@m("is_available raises")
def is_available(self): raise RuntimeError
@m("is_available an int")
def is_available(self): return 1
@m("is_fp16_supported None")
def is_fp16_supported(self): return None
@m("lazy_call returns the callback unrun")
def lazy_call(self, callback): return callback
@m("lazy_call in another thread")
def lazy_call(self, callback):
    t = threading.Thread(target=callback); t.start(); t.join()
@m("current_device in torch's words")
def current_device(self): return torch.device(self.device_type, S(self).current_device())
@m("synchronize of no device waits for device 0")
def synchronize(self, device_index=None): S(self).synchronize(0 if device_index is None else device_index)
@m("synchronize of the current stream")
def synchronize(self, device_index=None): self._index(device_index); self.current_stream(device_index).synchronize()
@m("default_stream of device 0")
def default_stream(self, device_index=None): self._index(device_index); return S(self).default_stream(0)
@m("set_stream for all threads")
def set_stream(self, stream): S(self).set_stream(stream); self.set_device(0)
@m("stream(s) leaves the device of s selected")
@contextlib.contextmanager
def stream(self, stream):
    with S(self).stream(stream): yield
    if stream is not None: self.set_device(stream.device.index)
F["stream(s) leaves the device of s selected"] = {"stream": stream}
@m("stream(s) does not select the device of s")
@contextlib.contextmanager
def stream(self, stream):
    d = self.current_device()
    with S(self).stream(stream):
        self.set_device(d); yield
F["stream(s) does not select the device of s"] = {"stream": stream}
@m("stream(s) waits at its end")
@contextlib.contextmanager
def stream(self, stream):
    with S(self).stream(stream): yield
    if stream is not None: stream.synchronize()
F["stream(s) waits at its end"] = {"stream": stream}
@m("is_current_stream_capturing of any thread")
def is_current_stream_capturing(self): return False
@m("device_properties a dict")
def device_properties(self, device_index=None):
    import types
    p = S(self).device_properties(device_index); return types.SimpleNamespace(**{n: getattr(p,n) for n in ("name","total_memory","capability","uuid","multiprocessors") if hasattr(p,n)})
@m("device_properties of device 0")
def device_properties(self, device_index=None): self._index(device_index); return S(self).device_properties(0)
@m("supported_dtypes has int64")
def supported_dtypes(self): return S(self).supported_dtypes() + [torch.int64]
@m("supported_dtypes a tuple")
def supported_dtypes(self): return tuple(S(self).supported_dtypes())
@m("get_device_capability a frozenset")
def get_device_capability(self, device_index=None): return {"supported_dtypes": list(S(self).get_device_capability(device_index)["supported_dtypes"])}
F = {**ONE, **F}
