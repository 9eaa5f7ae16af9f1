"""Faults as an outsider plants them in a vendor's plugin, by area."""

import contextlib
import functools
import inspect
import threading
from unittest import mock

import torch

from accel_core import Accelerator
from conformance_mutants.breaking import whole
from conformance_mutants.generated import Generated
from conformance_mutants.planted_kernels import KERNELS


def _made(name, **methods):
    """`Stream` or `Event` with some methods made wrong."""
    kind = type(name, (getattr(torch, name),), methods)

    def make(*args, **options):
        return kind(*args, **{**({} if args else {"device": "acme"}), **options})

    return {name: property(lambda self: make)}


def _is_main():
    return threading.current_thread() is threading.main_thread()


def _on_main_alone(name, otherwise=lambda self, *args, **kwargs: None):
    """Whole on the main thread; on others it does something else, without a word."""

    def member(self, *args, **kwargs):
        return whole(self, name, *args, **kwargs) if _is_main() else otherwise(self, *args, **kwargs)

    return {name: member}


@contextlib.contextmanager
def _nothing(self, *args, **kwargs):
    yield


# --- is it done? -----------------------------------------------------------------------------------------


def _first_answer(self):
    if not getattr(self, "_was", False):
        self._was = super(type(self), self).query()
    return self._was


def _second_asking(self):
    self._asked = getattr(self, "_asked", 0) + 1
    return self._asked > 1 or super(type(self), self).query()


def _not_of_the_first(self):
    return bool(self.device.index) or super(type(self), self).query()


def _not_on_a_side(self):
    return self.stream_id != 0 or super(type(self), self).query()


def _after_a_while(self):
    import time

    self._until = getattr(self, "_until", time.monotonic() + 0.001)
    return super(type(self), self).query() or time.monotonic() > self._until


QUERIES = {
    "an event has always happened": _made("Event", query=lambda self: True),
    "a stream is always done": _made("Stream", query=lambda self: True),
    "an event that is used again has happened": _made("Event", query=_first_answer),
    "a stream asks the default one": _made(
        "Stream", query=lambda self: torch.Stream(stream_id=0, device_index=0, device_type=20).query()
    ),
    "an event has happened when it is asked again": _made("Event", query=_second_asking),
    "a stream of another device is always done": _made("Stream", query=_not_of_the_first),
    "a side stream is always done": _made("Stream", query=_not_on_a_side),
    "an event has happened after a millisecond": _made("Event", query=_after_a_while),
    "an event never happens": _made("Event", query=lambda self: False),
    "a stream is never done": _made("Stream", query=lambda self: False),
    "an event answers 1": _made("Event", query=lambda self: int(super(type(self), self).query())),
    "an event says the opposite": _made("Event", query=lambda self: not super(type(self), self).query()),
    "a stream says the opposite": _made("Stream", query=lambda self: not super(type(self), self).query()),
    "an event is waited for once": _made(
        "Event",
        synchronize=lambda self: (
            None if getattr(self, "_once", False) else super(type(self), self).synchronize(),
            setattr(self, "_once", True),
        )[0],
    ),
    "synchronize of the current stream alone": {
        "synchronize": lambda self, device_index=None: torch.accelerator.current_stream().synchronize()
    },
    "synchronize of the first device alone": {
        "synchronize": lambda self, device_index=None: whole(self, "synchronize", 0)
    },
}

# --- new threads -----------------------------------------------------------------------------------------

_selected = {}


def _selects_for_all(self, device_index):
    whole(self, "set_device", device_index)
    _selected["all"] = whole(self, "current_device")


def _selected_by_any(self):
    """Of a thread that has selected none: what any other has."""
    here = whole(self, "current_device")
    if not _is_main() and not getattr(_own, "known", False):
        return _selected.get("all", here)
    return here


_own = threading.local()


def _last_at_first(self):
    if not _is_main() and not hasattr(_own, "begun"):
        _own.begun = True
        whole(self, "set_device", self.device_count() - 1)
    return whole(self, "current_device")


def _stream_of_any(self, device_index=None):
    if _is_main():
        _selected["stream"] = whole(self, "current_stream", device_index)
        return _selected["stream"]
    return _selected.get("stream") or whole(self, "current_stream", device_index)


@contextlib.contextmanager
def _noted(self, stream):
    with whole(self, "stream", stream):
        _selected["stream"] = stream
        yield
    _selected.pop("stream", None)


@contextlib.contextmanager
def _threads_autocast(self, dtype=None, enabled=True):
    """It is on in threads that begin inside."""
    begin = threading.Thread.run

    def run(thread):
        with whole(self, "autocast", dtype, enabled):
            begin(thread)

    with mock.patch.object(threading.Thread, "run", run), whole(self, "autocast", dtype, enabled):
        yield


def _generator_of_the_thread(self, device_index=None):
    if _is_main():
        return whole(self, "default_generator", device_index)
    _own.generator = getattr(_own, "generator", None) or torch.Generator("acme")
    return _own.generator


def _data_on_the_first(self):
    kind = whole_property(self, "FloatTensor")
    return (
        kind
        if _is_main()
        else lambda data=(), **more: torch.tensor(data, device="acme:0", dtype=torch.float32)
    )


def whole_property(self, name):
    return getattr(super(type(self), self), name)


THREADS = {
    "begin with what another selected": {
        "set_device": _selects_for_all, "current_device": _selected_by_any,
    },
    "begin on the last device": {"current_device": _last_at_first},
    "begin on another's stream": {"current_stream": _stream_of_any, "stream": _noted},
    "begin inside another's autocast": {"autocast": _threads_autocast},
    "have generators of their own": {"default_generator": _generator_of_the_thread},
    "cannot seed": _on_main_alone("manual_seed"),
    "cannot seed all": _on_main_alone("manual_seed_all"),
    "cannot restore a state": _on_main_alone("set_rng_state"),
    "cannot select": _on_main_alone("set_device"),
    "cannot guard": _on_main_alone("device_guard", _nothing),
    "cannot change the stream": _on_main_alone("stream", _nothing),
    "cannot set the stream": _on_main_alone("set_stream"),
    "have no autocast": _on_main_alone("autocast", _nothing),
    "cannot fork the generators": _on_main_alone("fork_rng", _nothing),
    "do not wait": _on_main_alone("synchronize"),
    "see no memory": _on_main_alone("memory_allocated", lambda self, *_: 0),
    "see another seed": _on_main_alone("initial_seed", lambda self: 0),
    "see the first device's name": _on_main_alone("current_device_name", lambda self: "acme:0"),
    "make data on the first": {"FloatTensor": property(_data_on_the_first)},
    "cannot reset a peak": _on_main_alone("reset_peak_memory_stats"),
}  # fmt: skip

# --- seeds ------------------------------------------------------------------------------------------------


def _each(count, seed=lambda n, i: n):
    def member(self, n):
        for index in count(self):
            whole(self, "default_generator", index).manual_seed(seed(n, index))

    return {"manual_seed_all": member}


def _all_states(self, new_state, device_index=None, strict=True):
    for index in range(self.device_count()):
        whole(self, "set_rng_state", new_state, index)


@contextlib.contextmanager
def _forks_current(self, devices=None):
    with whole(self, "fork_rng", [self.current_device()] if devices is None else devices):
        yield


@contextlib.contextmanager
def _forks_all(self, devices=None):
    with whole(self, "fork_rng"):
        yield


@contextlib.contextmanager
def _forks_not_the_host(self, devices=None):
    with whole(self, "fork_rng", devices):
        yield
        state = torch.get_rng_state()
    torch.set_rng_state(state)


SEEDS = {
    "all is the current": _each(lambda self: [self.current_device()]),
    "all is all but the last": _each(lambda self: range(self.device_count() - 1)),
    "all is all but the current": _each(
        lambda self: [i for i in range(self.device_count()) if i != self.current_device()]
    ),
    "all is all but the first": _each(lambda self: range(1, self.device_count())),
    "all, each another": _each(lambda self: range(self.device_count()), lambda n, i: n + i),
    "all, cut to 16 bits": _each(lambda self: range(self.device_count()), lambda n, i: n & 0xFFFF),
    "all selects the last": {
        "manual_seed_all": lambda self, n: (whole(self, "manual_seed_all", n), self.set_device(1))[0]
    },
    "one is the first": {"manual_seed": lambda self, n: whole(self, "default_generator", 0).manual_seed(n)},
    "the seed of the first is told": {
        "initial_seed": lambda self: whole(self, "default_generator", 0).initial_seed()
    },
    "a state is set on all": {"set_rng_state": _all_states},
    "fork_rng is of the current": {"fork_rng": _forks_current},
    "fork_rng is of all, whatever is given": {"fork_rng": _forks_all},
    "fork_rng leaves the host": {"fork_rng": _forks_not_the_host},
    "a seed draws": {
        "manual_seed_all": lambda self, n: (
            whole(self, "manual_seed_all", n), torch.rand(1, device="acme:1"), None,
        )[-1]
    },
}  # fmt: skip

#: Of torch's module of the device, which `random()` and `torch.manual_seed` lead to.
MODULE = {
    "torch's manual_seed_all is of the current": ("manual_seed_all", lambda n: torch.acme.manual_seed(n)),
    "torch's seed_all is of the first": ("seed_all", lambda: torch.acme.seed()),
}

# --- guards -----------------------------------------------------------------------------------------------


def _swallows(name):
    @contextlib.contextmanager
    def member(self, *args, **kwargs):
        with contextlib.suppress(KeyError, RuntimeError), whole(self, name, *args, **kwargs):
            yield

    return {name: member}


@contextlib.contextmanager
def _back_to_the_first(self, device_index):
    with whole(self, "device_guard", device_index):
        yield
    self.set_device(0)


@contextlib.contextmanager
def _in_one_slot(self, device_index):
    self._kept = self.current_device()
    if device_index is not None:
        self.set_device(device_index)
    try:
        yield
    finally:
        self.set_device(self._kept)


@contextlib.contextmanager
def _first_after_error(self, device_index):
    before = self.current_device()
    if device_index is not None:
        self.set_device(device_index)
    try:
        yield
    except BaseException:
        self.set_device(0)
        raise
    self.set_device(before)


def _remembered(self, device_index):
    """What was selected when it was made, not when it began."""
    before = self.current_device()

    @contextlib.contextmanager
    def block():
        self.set_device(before if device_index is None else device_index)
        try:
            yield
        finally:
            self.set_device(before)

    return block()


@contextlib.contextmanager
def _back_to_default(self, stream):
    with whole(self, "stream", stream):
        yield
    if stream is not None:
        self.set_stream(self.default_stream())


@contextlib.contextmanager
def _stream_in_one_slot(self, stream):
    self._stream_kept = self.current_stream()
    if stream is not None:
        self.set_stream(stream)
    try:
        yield
    finally:
        self.set_stream(self._stream_kept)


@contextlib.contextmanager
def _seeds_in_one_slot(self, devices=None):
    self._states = [torch.get_rng_state(), *(self.get_rng_state(i) for i in range(self.device_count()))]
    try:
        yield
    finally:
        torch.set_rng_state(self._states[0])
        for index, state in enumerate(self._states[1:]):
            self.set_rng_state(state, index)


@contextlib.contextmanager
def _off_afterwards(self, dtype=None, enabled=True):
    with whole(self, "autocast", dtype, enabled):
        yield
    torch.set_autocast_enabled("acme", False)


@contextlib.contextmanager
def _leaves_the_type(self, dtype=None, enabled=True):
    with whole(self, "autocast", dtype, enabled):
        yield
        kept = torch.get_autocast_dtype("acme")
    torch.set_autocast_dtype("acme", kept)


@contextlib.contextmanager
def _disabled_is_for_good(self, dtype=None, enabled=True):
    before = torch.is_autocast_enabled("acme")
    with whole(self, "autocast", dtype, enabled):
        yield
    torch.set_autocast_enabled("acme", before and enabled)


@contextlib.contextmanager
def _leaves_the_capture_stream(self, graph, pool=None, stream=None):
    with whole(self, "capture_to_graph", graph, pool, stream):
        yield
        inside = self.current_stream()
    if graph is not None:
        self.set_stream(inside)


@contextlib.contextmanager
def _capture_error_leaves_stream(self, graph, pool=None, stream=None):
    try:
        with whole(self, "capture_to_graph", graph, pool, stream):
            inside = self.current_stream()
            yield
    except BaseException:
        if graph is not None:
            self.set_stream(inside)
        raise


@contextlib.contextmanager
def _captures_on_its_own(self, graph, pool=None, stream=None):
    with whole(self, "capture_to_graph", graph, pool, None):
        yield


GUARDS = {
    "device_guard goes back to the first": {"device_guard": _back_to_the_first},
    "device_guard has one slot": {"device_guard": _in_one_slot},
    "device_guard goes back to the first after an error": {"device_guard": _first_after_error},
    "device_guard remembers when it was made": {"device_guard": _remembered},
    **{f"{name} swallows errors": _swallows(name) for name in (
        "device_guard", "stream", "fork_rng", "autocast", "capture_to_graph", "range")},
    "stream goes back to the default": {"stream": _back_to_default},
    "stream has one slot": {"stream": _stream_in_one_slot},
    "fork_rng has one slot": {"fork_rng": _seeds_in_one_slot},
    "autocast is off afterwards": {"autocast": _off_afterwards},
    "autocast leaves its type": {"autocast": _leaves_the_type},
    "autocast, disabled, is off for good": {"autocast": _disabled_is_for_good},
    "a capture leaves its stream": {"capture_to_graph": _leaves_the_capture_stream},
    "a capture with an error leaves its stream": {"capture_to_graph": _capture_error_leaves_stream},
    "a capture takes its own stream": {"capture_to_graph": _captures_on_its_own},
}  # fmt: skip

# --- the other members ------------------------------------------------------------------------------------


def _peak_of_all(self, device_index=None):
    for index in range(self.device_count()):
        whole(self, "reset_peak_memory_stats", index)


def _selects_what_is_refused(self, device_index):
    try:
        whole(self, "set_device", device_index)
    except ValueError:
        whole(self, "set_device", self.device_count() - 1)
        raise


def _only_first_id(self, environ, ids):
    whole(self, "set_visible_devices_envs", environ, list(ids)[:1])


OTHER = {
    "a peak is reset to nothing": {
        "max_memory_allocated": lambda self, device_index=None: max(
            0, whole(self, "max_memory_allocated", device_index)
            - (whole(self, "memory_allocated", device_index)
               if whole(self, "max_memory_allocated", device_index)
               == whole(self, "memory_allocated", device_index) else 0))
    },
    "the peak is of all devices": {"reset_peak_memory_stats": _peak_of_all},
    "a refused selection selects": {"set_device": _selects_what_is_refused},
    "on_accelerator knows the current device alone": {
        "on_accelerator": lambda self, t: t.device.type == "acme" and t.device.index == self.current_device()
    },
    "on_accelerator takes no parameter": {
        "on_accelerator": lambda self, t: t.device.type == "acme" and type(t) is torch.Tensor
    },
    "float16 is not supported, and is listed": {
        "is_fp16_supported": lambda self: False, "supported_dtypes": lambda self: [
            torch.float32, torch.bfloat16, torch.float16],
    },
    "float64 is not supported, and works": {"is_fp64_supported": lambda self: False},
    "the communication of the host": {"communication_backend_name": lambda self: "gloo"},
    "the communication of another": {"communication_backend_name": lambda self: "nccl"},
    "time to now": _made(
        "Event",
        elapsed_time=lambda self, end: (
            now := torch.Event("acme", enable_timing=True), now.record(), now.synchronize(),
            super(type(self), self).elapsed_time(now),
        )[-1],
    ),
    "time backwards": _made(
        "Event", elapsed_time=lambda self, end: super(type(self), end).elapsed_time(self)
    ),
    "time in microseconds": _made(
        "Event", elapsed_time=lambda self, end: super(type(self), self).elapsed_time(end) * 1e3
    ),
    "pin_memory locks nothing": {
        "pin_memory": lambda self, tensor, make_copy=True, match_shape=True: tensor.clone(),
        "is_pinned": lambda self, tensor: True,
    },
    "pin_memory flattens what is not contiguous": {
        "pin_memory": lambda self, tensor, make_copy=True, match_shape=True: whole(
            self, "pin_memory",
            tensor if tensor.is_contiguous() else tensor.T.contiguous().view(tensor.shape),
            make_copy, match_shape)
    },
    "the uuid is the same": {"device_uuid": lambda self, device_index=None: "acme-0"},
    "free memory includes what is used": {
        "available_memory": lambda self, device_index=None: self.total_memory(device_index)
    },
    "one graph for all": {
        "create_graph": lambda self: self.__dict__.setdefault("_graph", whole(self, "create_graph"))
    },
    "the clock of the host": {"use_host_timers": lambda self: True},
    "is_synchronized_device": {"is_synchronized_device": lambda self: True},
    "data in float16 on the host's type": {
        "HalfTensor": property(lambda self: lambda *a, **k: torch.tensor(*a, device="acme").bfloat16())
    },
    "device without an index is the last": {
        "device": lambda self, device_index=None: whole(
            self, "device", self.device_count() - 1 if device_index is None else device_index)
    },
    "empty_cache takes the peak": {
        "empty_cache": lambda self: (whole(self, "empty_cache"), whole(self, "reset_peak_memory_stats"))[0]
    },
    "memory_stats resets the peak": {
        "memory_stats": lambda self, device_index=None: (
            whole(self, "memory_stats", device_index),
            whole(self, "reset_peak_memory_stats", device_index))[0]
    },
    "grad_scaler never grows": {
        "grad_scaler": lambda self, dtype=None, **o: whole(
            self, "grad_scaler", dtype, **{**o, "growth_factor": 1.0001})
    },
    "lazy_call calls twice": {"lazy_call": lambda self, callback: (callback(), callback())[0]},
    "record_event records nothing": _made(
        "Stream", record_event=lambda self, event=None: torch.Event("acme")
    ),
    "wait_event of another stream": _made("Stream", wait_event=lambda self, event: None),
}  # fmt: skip


def _patched(name, wrong):
    return lambda: mock.patch.object(torch.acme, name, wrong)


def _as_declared(members):
    """Members that take what the interface says, whatever ours are called."""
    return {
        name: functools.wraps(getattr(Accelerator, name))(member) if inspect.isfunction(member) else member
        for name, member in members.items()
    }


AREAS = {
    "queries": QUERIES, "new threads": THREADS, "seeds": SEEDS, "guards": GUARDS, "other members": OTHER,
}  # fmt: skip
PLANTED = {
    **{
        f"{area}: {name}": Generated(area, _as_declared(members))
        for area, rows in AREAS.items()
        for name, members in rows.items()
    },
    **{f"seeds: {name}": Generated("seeds", {}, _patched(*how)) for name, how in MODULE.items()},
    **{name: Generated(area, {}, kernel) for name, (area, kernel) in KERNELS.items()},
}
