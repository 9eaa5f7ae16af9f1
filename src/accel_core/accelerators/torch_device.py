"""`TorchAccelerator`: the interface over any `torch.<device_type>` module; `GenericAccelerator`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, cached_property, partial, wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from accel_core.accelerators import Accelerator
from accel_core.accelerators.devices import torchs_device
from accel_core.accelerators.dtypes import computes_in
from accel_core.backend import Backend
from accel_core.errors import BackendUnavailableError, HostMemoryError

if TYPE_CHECKING:
    import torch
    from torch.types import Device

    from accel_core.accelerators.records import DeviceCapability, DeviceProperties, Graph

Function = Callable[..., Any]
#: Types whose memory and streams `torch.accelerator` serves; of others each is tried at its first call.
_TRUSTED = ("cuda", "xpu")


#: Functions of a vendor's module, `torch.<device_type>`, that serve the member of their name (`set_device`
#: serves `_select`), and what `torch.accelerator` calls them: the newest torch that is read, an older one may
#: not have it.
ROWS = {
    "current_device": "current_device_index", "current_stream": "current_stream", "default_stream": "",
    "device_count": "device_count", "empty_cache": "empty_cache",
    "get_rng_state": "random.get_rng_state", "initial_seed": "random.initial_seed",
    "is_current_stream_capturing": "", "is_initialized": "", "manual_seed": "", "manual_seed_all": "",
    "max_memory_allocated": "max_memory_allocated", "max_memory_reserved": "max_memory_reserved",
    "memory_allocated": "memory_allocated", "memory_reserved": "memory_reserved",
    "set_device": "set_device_index", "set_stream": "set_stream", "stream": "", "synchronize": "synchronize",
    "reset_accumulated_memory_stats": "reset_accumulated_memory_stats",
    "reset_peak_memory_stats": "reset_peak_memory_stats",
}  # fmt: skip
#: Each has need of a stream class: without one, the one queue of the default serves.
OF_STREAMS = ("current_stream", "default_stream", "set_stream", "stream")
#: The vendor's function comes before torch's: it tells more, or is what torch's own calls.
_VENDOR_FIRST = ("current_stream", "device_count", "is_current_stream_capturing")


def _of_allocator(name: str) -> bool:
    """Whether torch's needs an allocator of torch's kind, and says 0 before the device starts."""
    return "mem" in name or name == "empty_cache"


def parameters(function: Function) -> list[inspect.Parameter] | None:
    """Return the parameters of `function`; `None` if Python cannot tell, as for some functions
    written in C.
    """
    with suppress(TypeError, ValueError):
        return list(inspect.signature(function).parameters.values())
    return None


def has_parameter(function: Function, name: str) -> bool:
    """Whether `function` is known to have a parameter of that name."""
    return any(p.name == name for p in parameters(function) or ())


def accepts(function: Function, member: Function) -> bool:
    """Whether `function` takes every call that `member` documents: same names, same places."""
    theirs, ours = parameters(function), parameters(member) or []
    if theirs is None or [(p.name, p.kind) for p in theirs[: len(ours)]] != [(p.name, p.kind) for p in ours]:
        return False
    given = sum(p.default is inspect.Parameter.empty for p in ours)  # by every caller
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(p.default is not inspect.Parameter.empty or p.kind in variadic for p in theirs[given:])


def _natively(ask: Function) -> bool:
    """A vendor's answer about a data type, without the emulation that several count by default."""
    return bool(ask(including_emulation=False) if has_parameter(ask, "including_emulation") else ask())


def _as_constant(count: Callable[[], int]) -> Callable[[], int]:
    """`count`, asked while torch.compile compiles: torch's own returns no tensor, which breaks a graph."""

    def device_count() -> int:
        return count()

    # What torch.compiler.assume_constant_result sets; that imports Dynamo, a second.
    device_count._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return device_count


def _is_missing(error: RuntimeError) -> bool:
    """Whether a vendor's function is none for us: it names torch's instead, as TorchTPU's do."""
    return isinstance(error, NotImplementedError) or "torch.accelerator" in str(error)


@cache  # registered only as long as somebody holds it
def _record_nothing(torch: Any, device_type: str) -> Any:
    """Register a kernel of `record_stream` that does nothing, once for a device type."""
    library = torch.library.Library("aten", "IMPL")
    key = torch._C._dispatch_key_for_device(device_type)
    library.impl("record_stream", lambda *_: None, key)
    return library


#: torch's words (2.13) for a device without an allocator of such memory, or hooks to name one; TorchTPU's.
_NO_LOCKS = (
    "no pinned memory allocator",
    "register PrivateUse1HooksInterface",
    "getPinnedMemoryAllocator",
    "host memory allocator is not implemented",
)


def lacks_page_locks(error: RuntimeError) -> bool:
    """Whether torch's error means that the device has no page-locked memory, not that the host's is
    used up.
    """
    return isinstance(error, NotImplementedError) or any(words in str(error) for words in _NO_LOCKS)


class TorchAccelerator(Accelerator):
    """An accelerator whose vendor provides a module `torch.<device_type>`, as most do.

    A member becomes a function of torch's or of the vendor's, as an attribute of this object:
    `acc.current_device is torch.npu.current_device`. If torch itself brings the device (cuda, xpu, mps),
    torch.accelerator's function comes first, else the vendor module's; if a package brings it, the vendor
    module's, else torch.accelerator's. If neither has one, the default of `Accelerator` stays.

    On torch's PrivateUse1 a vendor's function may be unfinished: if its first call raises
    `NotImplementedError`, or an error that names torch.accelerator's, it is not used again, and `refused` has
    the message.

    A function that differs only in the names of its parameters is wrapped. A member that a subclass overrides
    is left alone, and its `super()` call reaches the vendor's function. Without a declaration, the device is
    the one that `torch.accelerator` reports.

    Raises `BackendUnavailableError` if torch has no such module: import the vendor's package first.
    """

    def __init__(self, backend: Backend | None = None) -> None:
        super().__init__(backend)
        #: The vendor's module: `torch.npu`.
        self.device_module: Any = getattr(self._torch, self._device_type, None)
        if self.device_module is None:
            raise BackendUnavailableError(
                f"{self.name}: torch has no module torch.{self._device_type}; "
                f"import {' or '.join(self.backend.vendor_imports)} before constructing {type(self).__name__}"
            )
        # Asking initialises nothing.
        torchs = getattr(self._if_supported(torchs_device, self._torch, False), "type", None)
        #: `torch.accelerator` where it speaks of this device, else `None`.
        self._torch_accelerator: Any = self._torch.accelerator if torchs == self._device_type else None
        self._stream_class, self._event_class = self._find_streams()
        #: Vendor's functions that raised when they were called and are left out since then, with the reason.
        self.refused: dict[str, str] = {}
        #: What serves each row, also where a subclass overrides the member.
        self._vendor: dict[str, Function] = {}
        for name in ROWS:
            self._bind(name)
        self._trials: dict[torch.dtype, bool] = {}

    # What is there

    def _torch_device_type(self) -> str:
        return super()._torch_device_type() if self._is_declared else self._torchs_own_type()

    def _torchs_own_type(self) -> str:
        try:
            device = torchs_device(self._torch)
        except RuntimeError as why:  # torch finds two that exclude each other
            raise BackendUnavailableError(f"{self.name}: torch cannot name its accelerator: {why}") from why
        if device is None:
            raise BackendUnavailableError(f"{self.name}: torch reports no accelerator")
        return str(device.type)

    @cached_property
    def _is_private(self) -> bool:
        """Whether this is torch's renamed PrivateUse1, of whose functions torch promises nothing."""
        return bool(self._torch._C._get_privateuse1_backend_name() == self._device_type)

    def _lookup(self, name: str) -> Any:
        """Return the vendor's object of that name, or `None`."""
        return getattr(self.device_module, name, None)

    def _part(self, name: str, *given: Any, torchs: str = "") -> Any:
        """Ask the vendor's function, else torch.accelerator's; `None` without one, and for one that fails."""
        vendors = self._lookup(name)
        if (ask := vendors or getattr(self._torch_accelerator, torchs, None)) is None:
            return None
        try:
            return ask(*given)
        except RuntimeError as error:
            if vendors and not self._holds_tensors():
                raise
            self.refused[name] = str(error)
            return None

    def _holds_tensors(self) -> bool:
        """Whether the device works as such, so that what raised is the fault of one function."""
        read = self._if_supported(lambda: self._torch.ones(1, device=self._device_type).cpu())
        return read is not None  # one that nobody reads may start nothing

    # Binding

    def _functions(self, name: str) -> list[Function]:
        """The functions that can serve a row, the best first: torch's and the vendor's.

        torch's come first where torch brings the module too. A vendor's own come before torch's: torch_npu's
        (2.13.0) set the context of a thread, and torch's do not.
        """
        if name in OF_STREAMS and self._stream_class is None:
            return []
        vendors, torchs = self._lookup(name), None
        with suppress(AttributeError):
            torchs = attrgetter(ROWS[name])(self._torch_accelerator)
        if name == "is_current_stream_capturing":
            torchs = self._is_capturing
        is_torchs = self.backend.vendor_imports == ("torch",) and not self._is_private
        torchs_first = self._is_private if name == "set_stream" else is_torchs and name not in _VENDOR_FIRST
        in_order = (torchs, vendors) if torchs_first else (vendors, torchs)
        last = self._enter if name == "set_stream" else None
        return [function for function in (*in_order, last) if function is not None]

    def _enter(self, stream: torch.Stream) -> None:
        self.stream(stream).__enter__()  # sets it, and is not left

    def _bind(self, name: str) -> None:
        """Find what serves a row: a function, one that the first call finds, or the default."""
        member = "_select" if name == "set_device" else name
        functions, serves = self._functions(name), getattr(super(), member)
        if functions:
            doubtful = (_of_allocator(name) or name in OF_STREAMS) and functions[0] != self._lookup(name)
            if self._device_type in _TRUSTED or not (self._is_private or doubtful):
                serves = self._shaped(functions[0], serves)
            else:
                serves = self._first_that_works(name, functions, serves)
        self._put(member, _as_constant(serves) if name == "device_count" else serves)

    def _put(self, name: str, function: Function) -> None:
        """Let `function` serve the row, in the member's place too where no subclass overrides it."""
        self._vendor[name] = function
        if getattr(type(self), name) is getattr(TorchAccelerator, name):
            setattr(self, name, function)

    def _shaped(self, function: Function, default: Function) -> Function:
        """`function`, called as `default` is: by itself where the calls are the same."""
        ours = [parameter.name for parameter in parameters(default) or ()]
        # A `StreamContext` takes `None`: torch's modules and those that follow them have one.
        if ours == ["stream"] and not (self._lookup("StreamContext") and accepts(function, default)):
            return lambda stream: nullcontext() if stream is None else function(stream)
        if not ours or accepts(function, default):
            return function
        if ours == ["device_index"]:
            return self._by_index(function)
        return lambda seed: function(seed)  # noqa: PLW0108 - the one other argument, by our name

    def _by_index(self, function: Function) -> Function:
        """`function(device)` as `member(device_index=None)`.

        One that needs a device is given the current one, and one that takes none runs with it selected. Else
        the vendor's own default stands for the current device: `None`, or a string such as "cuda".
        """
        named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        given = parameters(function)
        places = [parameter for parameter in given or () if parameter.kind not in named]
        needs_one = bool(places) and places[0].default is inspect.Parameter.empty

        def member(device_index: Device = None) -> Any:
            if device_index is None:
                # Whatever a subclass makes of `current_device`.
                return function(int(self._vendor["current_device"]())) if needs_one else function()
            index = self._checked_index(device_index)
            if places or given is None:
                return function(index)
            with self.device_guard(index):
                return function()

        return member

    def _first_that_works(self, name: str, functions: list[Function], default: Function) -> Function:
        """Give the first that does not raise, decided at the first call; the member's default is the last.

        torch's raise `RuntimeError` where it cannot serve the device; of a vendor's functions only what
        `_is_missing` knows is passed over, as a device that fails raises `RuntimeError` too.
        """

        @wraps(default)
        def first(*given: Any, **named: Any) -> Any:
            failures: list[RuntimeError] = []
            usable = [] if name in OF_STREAMS and not self._has_streams else functions
            for function in (*usable, default):
                shaped = self._shaped(function, default)
                try:
                    answer = shaped(*given, **named)
                except RuntimeError as error:
                    if function == self._lookup(name) and not _is_missing(error):
                        raise  # of a device that fails
                    failures.append(error)
                    continue
                # An allocator of another kind than torch's says nothing before its device starts.
                if not _of_allocator(name) or self.is_initialized():
                    self._put(default.__name__, shaped)
                    if failures:
                        self.refused[name] = str(failures[0])
                return answer
            # The default's "not supported" says less than what torch raised, if a device failed in it.
            raise failures[-1] if _of_allocator(name) else failures[-2:][0]

        return first

    def _find_streams(self) -> tuple[Any, Any]:
        """The stream and event classes; `None` where there is none."""
        found = map(self._lookup, ("Stream", "Event"))
        stream, event = (kind if inspect.isclass(kind) else None for kind in found)
        # torch's own classes serve its accelerator, and `stream` needs the one that is a context manager.
        if stream or self._torch_accelerator is None or not hasattr(self._torch.Stream, "__enter__"):
            return stream, event
        return self._torch.Stream, event or self._torch.Event

    @cached_property
    def _has_streams(self) -> bool:
        """Whether streams and events work; tried where torch's own classes serve, which promise nothing.

        Whether a device has brought its streams into torch is known by use alone.
        """
        if self._stream_class is not self._torch.Stream:
            return self._stream_class is not None
        with suppress(RuntimeError, TypeError):  # torch's words for what a backend does not implement
            stream, event = self._stream_class(), self._torch.Event()
            event.record(stream)
            event.synchronize()
            stream.synchronize()
            self._torch.empty(1, device=self._device_type).record_stream(stream)  # else memory has no order
            return True
        return False

    # Devices

    def _selecting(self, index: int) -> Any:
        """By the vendor's class, if it has one: that does not start a device only to select it again."""
        kind = self._lookup("device")
        usable = inspect.isclass(kind) and hasattr(kind, "__enter__") and "device" not in self.refused
        # TorchTPU keeps its own for torch.
        return (usable and self._part("device", index)) or super()._selecting(index)

    def device_properties(self, device_index: Device = None) -> DeviceProperties:
        """Return the properties from `torch.<device_type>.get_device_properties`, as a frozen record."""
        index = self._index(device_index)
        told = self._part("get_device_properties", index)
        if told is None:
            return super().device_properties(index)
        from accel_core.accelerators.records import read_properties

        return read_properties(told, self._if_supported(self.total_memory, index))

    def get_device_capability(self, device_index: Device = None) -> DeviceCapability:
        """Return the data types that tensors on the device can have, from `torch.accelerator`, else by trial.

        A vendor's function of this name is not used: it returns a compute capability, which
        `device_properties()` has.
        """
        index = self._index(device_index)
        # Of an older torch; torch's word for a device that does not tell.
        with suppress(AttributeError, RuntimeError):
            told = self._torch_accelerator.get_device_capability(index)
            return {"supported_dtypes": set(told["supported_dtypes"])}
        return super().get_device_capability(index)

    # Random numbers

    def default_generator(self, device_index: Device) -> torch.Generator:
        """Return the device's generator from the vendor's `default_generators`; may initialise the device.

        `None` means the current device. Raises `InvalidDeviceError`, a `ValueError`, if there is no such
        device.
        """
        index = self._index(device_index)
        if not self._generators():
            # Without an initialiser of its own, asking for the current device starts a vendor's runtime.
            (self._lookup("init") or self._lookup("_lazy_init") or self.current_device)()
        if not (generators := self._generators()):
            return super().default_generator(index)
        if index >= len(generators):  # the vendor has fewer than devices
            raise self._unsupported("default_generator", f"device {index} has no generator of its own")
        return generators[index]

    def _generators(self) -> Any:
        # Read anew: vendors put another tuple in place when they initialise. Habana keeps it in `random`.
        return self._lookup("default_generators") or getattr(self._lookup("random"), "default_generators", ())

    def _restore_rng_state(self, state: torch.Tensor, device_index: Device) -> None:
        if (restore := self._lookup("set_rng_state")) is None:
            super()._restore_rng_state(state, device_index)
        else:
            restore(state, *(() if device_index is None else (self._checked_index(device_index),)))

    # Streams

    @cached_property
    def Event(self) -> type[torch.Event]:
        """The vendor's event class, to be called as `Event(enable_timing=True)`; else the default."""
        # Metal has events of its own, and no streams; torch's own are tried with its streams.
        own = self._event_class is not self._torch.Event or self._has_streams
        return (self._event_class if own else None) or super().Event

    @cached_property
    def Stream(self) -> type[torch.Stream]:
        """The vendor's stream class, which accepts `device` and `priority`; else the default."""
        return self._stream_class if self._has_streams else self._recorded(super().Stream)

    def _recorded(self, one_queue: type) -> Any:
        """`one_queue` as a class of torch's streams, which `Tensor.record_stream` takes; else as it is.

        Where the device has no kernel of `record_stream`, one that does nothing is registered: of one queue,
        no memory can be given away too early.
        """
        kind = self._torch.Stream
        try:
            now = self._torch_accelerator.current_stream()
            numbers = {name: getattr(now, name) for name in ("stream_id", "device_index", "device_type")}
            make = {"__new__": lambda cls, *_, **__: kind.__new__(cls, **numbers)}
            made: Any = type("Stream", (one_queue, kind), make)
            stream = made()
        except (RuntimeError, TypeError, AttributeError):  # torch, or this one, knows no stream of the device
            return one_queue
        with suppress(RuntimeError):  # a device that holds no tensors yet has none to record
            tensor = self._torch.empty(1, device=self._device_type)
            try:
                tensor.record_stream(stream)
            except RuntimeError:  # as NotImplementedError, or what a fallback to the CPU says
                _record_nothing(self._torch, self._device_type)
        return made

    # Memory

    @cached_property
    def _locks_pages(self) -> bool:
        """Whether torch gives page-locked memory for this device: tried at the first use.

        Without such memory a device refuses; for Metal torch gives what is on it (pytorch#181374).
        """
        try:
            return bool(self._torch.empty(1, device="cpu", pin_memory=True).device.type == "cpu")
        except RuntimeError as error:
            return not lacks_page_locks(error)  # whoever asked is told of all else

    def empty_host_cache(self) -> None:
        """Return unused page-locked memory to the host by torch; before the device starts none is kept."""
        free = getattr(self._torch_accelerator, "empty_host_cache", None)
        if free and ("_locks_pages" in vars(self) or self.is_initialized()) and self._locks_pages:
            free()

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy of a host tensor; an ordinary one where the device has no such memory."""
        return self._lock(super()._torch_pin_memory, tensor) if self._locks_pages else tensor.clone()

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """Page-locked memory without values; ordinary memory where the device has no other."""
        return self._lock(partial(tensor.new_empty, pin_memory=self._locks_pages), shape)

    def _lock(self, function: Callable[[Any], torch.Tensor], given: Any) -> torch.Tensor:
        """Call what locks pages. Drivers tell of the host's limit in the words for a full device."""
        try:
            return function(given)
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            raise HostMemoryError(
                f"{self.name}: page-locked host memory ran out ({error}): the host limits it, as WSL2, "
                "`ulimit -l` and containers do, and not the device. Use less of it, or pin_memory=False"
            ) from error

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is page-locked; never where the device has no such memory."""
        return vars(self).get("_locks_pages", True) and super()._torch_is_pinned(tensor)

    def memory_stats(self, device_index: Device = None) -> Mapping[str, Any]:
        """Return the vendor's statistics, flat, with torch's keys.

        Before the vendor's allocator has started, which many vendors report as an empty mapping, it contains
        the present amounts.
        """
        index = self._index_or_none(device_index)
        given = () if index is None else (index,)
        return self._part("memory_stats", *given, torchs="memory_stats") or super().memory_stats(index)

    def mem_get_info(self, device_index: Device = None) -> tuple[int, int]:
        """`(free, total)` bytes of the device, as the vendor or torch tells them; else the default.

        Raises `UnsupportedError` for a device whose vendor does not tell, as Intel's integrated GPUs.
        """
        index = self._index(device_index)
        told = self._part("mem_get_info", index, torchs="get_memory_info")
        if told is None and self._lookup("mem_get_info"):
            raise self._unsupported("mem_get_info", self.refused["mem_get_info"])
        return super().mem_get_info(index) if told is None else told

    def total_memory(self, device_index: Device = None) -> int:
        """Return the device's memory in bytes, from its properties, else from `mem_get_info`."""
        index = self._index(device_index)
        if total := getattr(self._part("get_device_properties", index), "total_memory", None):
            return int(total)
        # Not `self.mem_get_info`: its default asks for the total.
        told = self._part("mem_get_info", index, torchs="get_memory_info")
        return super().total_memory(index) if told is None else int(told[1])

    def set_per_process_memory_fraction(self, fraction: float, device_index: Device = None) -> None:
        """Limit this process to `fraction` (0 to 1) of the device's memory."""
        if (limit := self._lookup("set_per_process_memory_fraction")) is None:
            super().set_per_process_memory_fraction(fraction, device_index)
        index = self._index_or_none(device_index)
        given = (index,) if index is not None and has_parameter(limit, "device") else ()
        with self.device_guard(None if given else index):
            limit(float(fraction), *given)

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Page-lock host memory; return False without a device, or if the vendor's module cannot do that.

        If the driver refuses, this raises the vendor's error: torch's `CudaError`, a `RuntimeError`.
        """
        return self._call_runtime("HostRegister", address, num_bytes, 0)

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`. Raises the vendor's error if the driver refuses."""
        self._call_runtime("HostUnregister", address)

    def _call_runtime(self, name: str, *given: int) -> bool:
        """Call a function of the vendor's runtime; False without it or without a device to use it on.

        The runtime is `torch.<type>.<type>rt()`, as torch names it for CUDA and ROCm, and vendors after it:
        `cudart().cudaHostRegister`, `supart()`.
        """
        runtime = self._lookup(f"{self._device_type}rt") if self.is_available() else None
        function = getattr(runtime and runtime(), f"{self._device_type}{name}", None)
        if function is None or (check := self._lookup("check_error")) is None:
            return False
        check(int(function(*given)))
        return True

    # Graphs

    @cached_property
    def _graph_and_capture(self) -> tuple[Any, Any]:
        """The vendor's graph class and its context manager, else torch's; no class if there is none.

        Every vendor names the class after itself: CUDAGraph, NPUGraph, MLUGraph, XPUGraph, HPUGraph.
        """
        if (capture := self._lookup("graph")) is not None:
            usual = f"{self._device_type.upper()}Graph"
            for name in (usual, *(name for name in dir(self.device_module) if name.endswith("Graph"))):
                kind = self._lookup(name)
                if isinstance(kind, type) and hasattr(kind, "replay"):
                    return kind, capture
        return getattr(self._torch_accelerator, "Graph", None), self._capture_in_torch

    def supports_graphs(self) -> bool:
        """Whether a graph can be made here: the vendor has a graph class, and there is a device.

        The first call makes a graph, which may initialise the device: the class alone proves nothing, because
        a torch built without the vendor has it too.
        """
        return self._graph_and_capture[0] is not None and self.is_available() and self._can_make_a_graph

    @cached_property
    def _can_make_a_graph(self) -> bool:
        with suppress(RuntimeError, TypeError):
            self._graph_and_capture[0]()
            return True
        return False

    def create_graph(self) -> Graph | None:
        """Return a new graph of the vendor's class, or `None` if graphs are not supported."""
        return self._graph_and_capture[0]() if self.supports_graphs() else super().create_graph()

    def capture_to_graph(
        self, graph: Graph | None, pool: Any = None, stream: torch.Stream | None = None
    ) -> AbstractContextManager[Any]:
        """Return the vendor's context manager that captures into `graph`; with `None` the work simply runs.

        `pool` is the memory pool of another graph to share; `stream` is the stream on which to capture.
        """
        if graph is None:
            return nullcontext()
        # By name, and only what was given: vendors differ in the order and in what they take.
        given = {key: value for key, value in (("pool", pool), ("stream", stream)) if value is not None}
        return self._graph_and_capture[1](graph, **given)

    def _is_capturing(self) -> bool:
        """Whether torch says so of the current stream; starts no device."""
        with suppress(AttributeError, RuntimeError):  # not in torch.accelerator; a device without graphs
            return self.is_initialized() and bool(self._torch_accelerator.current_stream().is_capturing())
        return False

    @contextmanager
    def _capture_in_torch(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[None]:
        if pool is not None:
            graph.graph_pool = pool
        # The default stream cannot be captured, so torch.cuda.graph too takes one of its own.
        with self.stream(self.Stream() if stream is None else stream), graph:
            yield

    # Data types

    def is_bf16_supported(self) -> bool:
        """Return the vendor's answer for bfloat16, emulated or not; without one, try a matrix product.

        The product is computed once, and again later if it failed for another reason than the data type.
        """
        return self._computes("is_bf16_supported", self._torch.bfloat16)

    def is_bf16_native(self) -> bool:
        """Whether the vendor reports bfloat16 without emulation; without such a report,
        `is_bf16_supported()`.
        """
        ask = self._lookup("is_bf16_supported")
        return super().is_bf16_native() if ask is None else self.is_available() and _natively(ask)

    def is_fp16_supported(self) -> bool:
        """Return the vendor's answer for float16; without one, try a matrix product as for bfloat16.

        A plugin that knows the answer overrides this, so that asking does not start the device.
        """
        return self._computes("is_fp16_supported", self._torch.float16)

    def is_fp8_supported(self) -> bool:
        """Return the vendor's answer for 8-bit floating point in hardware; False without one."""
        ask = self._lookup("is_fp8_supported")
        return ask is not None and self.is_available() and _natively(ask)

    def _computes(self, name: str, dtype: torch.dtype) -> bool:
        if not self.is_available():
            return False
        if (ask := self._lookup(name)) is not None:
            return bool(ask())
        if dtype not in self._trials:
            answer = computes_in(self._torch, self._device_type, dtype)
            if isinstance(answer, Exception):
                why = f"{type(answer).__name__}: {str(answer).partition(chr(10))[0]}"
                untried = f"whether it computes in {dtype} could not be tried, so the answer is no"
                said = f"{self.name}: {untried} until the next call: {why}"
                warnings.warn(said, RuntimeWarning, stacklevel=3)
                return False
            self._trials[dtype] = answer
        return self._trials[dtype]

    # Deferred calls

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Call `callback` when the device is initialised; at once if it is, or if the vendor cannot delay
        calls.
        """
        return (self._lookup("_lazy_call") or super().lazy_call)(callback)


def _delegate(name: str) -> Function:
    """A method that calls what serves the member: an override's `super()` reaches it, also when compiled."""

    @wraps(getattr(TorchAccelerator, name))
    def member(self: Any, *given: Any, **named: Any) -> Any:
        return self._vendor[name](*given, **named)

    return member


for _name in ("_select", *(ROWS.keys() - {"set_device"})):
    setattr(TorchAccelerator, _name, _delegate(_name))


class GenericAccelerator(TorchAccelerator):
    """`TorchAccelerator` for the device that `torch.accelerator` reports at construction.

    Its name is "generic"; `device_name()` is torch's name of the device. Raises `BackendUnavailableError` if
    torch reports no accelerator.
    """

    def _torch_device_type(self) -> str:
        return self._torchs_own_type()

    def device_count(self) -> int:
        """Return the number of devices that torch sees; a device that reports 0 before its start is
        started.
        """
        if not super().device_count() and self._is_private:
            self._holds_tensors()
        return int(super().device_count())
