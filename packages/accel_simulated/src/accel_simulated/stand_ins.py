"""Replace the functions of `torch._C` that `torch.xpu` and `torch.cuda` call but the CPU wheel lacks.

The replacements are installed while torch is being imported, so they may use other modules of torch only when
they are called.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from accel_core import UnsupportedError
from accel_simulated import data_parallel, device
from accel_simulated.host_memory import HostMemory
from accel_simulated.parts import ranges

__all__ = ["install"]

#: True if this process was forked after the runtime had started.
_forked = False


def install(c: ModuleType, name: str) -> None:
    """Add the functions and classes for `torch.<name>` to `c`, the module `torch._C`."""
    title = name.capitalize()
    classes = {
        f"_{title}StreamBase": _stream_base(c, name),
        f"_{title}EventBase": _event_base(c, name),
        f"_{title}DeviceProperties": Properties,
        f"_{name.upper()}Graph": _graph_base(c),
    }
    functions = _functions(c, name)
    prefixed = {f"_{name}_{key}": function for key, function in functions.items()}
    not_simulated = {key: _unusable_class(key) for key in _NOT_SIMULATED[name]}
    cuda_only = _cuda_only(c) if name == "cuda" else {}
    for key, value in {**not_simulated, **classes, **prefixed, **cuda_only}.items():
        setattr(c, key, value)
    c.__getattr__ = functools.partial(_raise_missing, name)  # type: ignore[method-assign]


class NotSimulatedError(UnsupportedError, AttributeError):
    """A function of the vendor's torch build is not simulated; `hasattr` returns False for the function."""


def _raise_missing(name: str, attribute: str) -> Any:
    """Raise the error for an attribute that `torch._C` lacks; `name` is the module's name in torch.

    torch tests for some missing attributes with `hasattr`, and calls other attributes without a test.
    """
    vendor_prefixes = (f"_{name}_", f"_{name.upper()}", f"_{name.title()}", "_nccl_")
    if attribute.startswith(vendor_prefixes):
        raise NotSimulatedError(
            f"torch._C.{attribute} is not simulated: this function needs the vendor's libraries, and torch's "
            f"CPU build does not have it. Leave the call out on a simulated {name}."
        )
    raise AttributeError(f"module 'torch._C' has no attribute {attribute!r}")


#: Functions of `torch._C` whose names have a vendor's prefix: the name without the prefix, and the equivalent
#: function with the prefix `_accelerator_`.
_SAME_FUNCTIONS = {
    "getDevice": "getDeviceIndex",
    "setDevice": "setDeviceIndex",
    "exchangeDevice": "exchangeDevice",
    "maybeExchangeDevice": "maybeExchangeDevice",
    "emptyCache": "emptyCache",
    "memoryStats": "getDeviceStats",
    "resetPeakMemoryStats": "resetPeakStats",
    "resetAccumulatedMemoryStats": "resetAccumulatedStats",
    "getMemoryInfo": "getMemoryInfo",
}


def _functions(c: ModuleType, name: str) -> dict[str, Callable[..., Any]]:
    """Return the functions that `torch.<name>` calls in `torch._C`, by their names without a prefix."""
    fractions: dict[int, float] = {}

    def synchronize(index: int = -1) -> None:
        c._accelerator_synchronizeDevice(
            c._accelerator_getDeviceIndex() if index in (-1, None) else index
        )

    def set_fraction(fraction: float, index: int) -> None:
        fractions[index] = fraction
        device.library.sim_set_fraction(index, fraction)

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        stream = c.Stream(
            stream_id=stream_id, device_index=device_index, device_type=device_type
        )
        c._accelerator_setStream(stream)

    def default_stream(index: int) -> tuple[int, int, int]:
        return 0, index, _numbers(c._accelerator_getStream(index))[2]

    same = {
        ours: getattr(c, f"_accelerator_{general}")
        for ours, general in _SAME_FUNCTIONS.items()
    }
    return {
        **same,
        "init": lambda: _start(name),
        "isInBadFork": lambda: _forked,
        "getDeviceCount": lambda: device.count,
        "synchronize": synchronize,
        "getCurrentStream": lambda index: _numbers(c._accelerator_getStream(index)),
        "getDefaultStream": default_stream,
        "getCurrentRawStream": lambda index: c._accelerator_getStream(index).stream_id,
        "setStream": set_stream,
        "isCurrentStreamCapturing": lambda: bool(device.library.sim_is_capturing()),
        "graph_pool_handle": _new_pool,
        "setMemoryFraction": set_fraction,
        "getMemoryFraction": lambda index: fractions.get(index, 1.0),
        "canDeviceAccessPeer": lambda one, other: one != other,
        "getArchFlags": lambda: "",
        "getCompiledVersion": lambda: 0,
        "memorySnapshot": lambda *_: {"segments": [], "device_traces": []},
    }


def _start(name: str) -> None:
    """Start the runtime, and set the attributes of `torch.<name>` that torch's C code would set.

    Raises `RuntimeError` if no device is available.
    """
    if not device.count:
        raise RuntimeError(device.no_device_message())
    module = sys.modules[f"torch.{name}"]
    module.default_generators = device.generators()  # type: ignore[attr-defined]
    module._get_device_properties = Properties  # type: ignore[attr-defined]
    os.register_at_fork(after_in_child=_mark_fork)


def _mark_fork() -> None:
    global _forked
    _forked = True


def _new_pool() -> tuple[int, int]:
    return device.library.sim_new_pool(), 0


def _numbers(stream: Any) -> tuple[int, int, int]:
    """Return a stream's id, device index and device type, as torch's C functions return a stream."""
    return stream.stream_id, stream.device_index, int(stream.device_type)


class Properties:
    """The properties of one device, with the attributes that `torch.cuda` or `torch.xpu` define.

    Attributes that describe a physical chip or its location (`L2_cache_size`, `pci_bus_id`) are absent.
    """

    def __init__(self, index: int) -> None:
        self.name = device.name()
        self.total_memory = device.memories[index]
        self.major, self.minor = 9, 0
        self.multi_processor_count = self.max_compute_units = 1
        self.uuid = f"simulated-{index}"
        self.has_fp16 = self.has_fp64 = self.has_bfloat16_conversions = True
        self.has_subgroup_matrix_multiply_accumulate = False
        self.is_integrated = self.is_multi_gpu_board = 0
        self.warp_size = 32

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotSimulatedError(
            f"the properties of a simulated device do not have {name!r}"
        )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"Properties({shown})"


def _stream_base(c: ModuleType, name: str) -> type:
    class StreamBase(c.Stream):  # type: ignore[name-defined, misc]
        def __new__(
            cls, priority: int = 0, stream_ptr: int | None = None, **known: Any
        ) -> Any:
            if "stream_id" in known:
                return super().__new__(cls, **known)
            index = c._accelerator_getDeviceIndex()
            return super().__new__(cls, device=c.device(name, index), priority=priority)

        # A real stream has a native handle here. This number must not be passed to a vendor's library.
        cuda_stream = sycl_queue = property(lambda self: self.stream_id)

    return StreamBase


def _event_base(c: ModuleType, name: str) -> type:
    class EventBase(c.Event):  # type: ignore[name-defined, misc]
        def __new__(cls, enable_timing: bool = False, **_: Any) -> Any:
            self = super().__new__(cls, device=name, enable_timing=enable_timing)
            # torch measures the time between plain `torch.Event`s only, so each event contains one.
            self._plain = c.Event(device=name, enable_timing=enable_timing)
            return self

        def record(self, stream: Any) -> None:
            # The inner event is recorded first: a stream keeps the order, so the inner event completes first.
            self._plain.record(stream)
            super().record(stream)

        def elapsed_time(self, end: Any) -> float:
            return float(self._plain.elapsed_time(end._plain))

    return EventBase


def _graph_base(c: ModuleType) -> type:
    class GraphBase(c._acceleratorGraph):  # type: ignore[name-defined, misc]
        def capture_begin(
            self, pool: Any = None, capture_error_mode: str = "default"
        ) -> None:
            super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)

    return GraphBase


def _unusable_class(name: str) -> type:
    """Return a class called `name` that can be imported; its constructor raises `NotImplementedError`."""

    def new(cls: type, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"torch._C.{name} is not simulated")

    return type(name, (), {"__new__": new})


#: Names that torch imports from `torch._C` but that are not simulated.
_NOT_SIMULATED = {
    "xpu": (
        "_xpu_XPUAllocator", "_XPUMemPool", "_xpu_beginAllocateCurrentThreadToPool", "_xpu_endAllocateToPool",
        "_xpu_releasePool",
    ),
    "cuda": (
        "_cuda_CUDAAllocator", "_cuda_CUDAAllocator_AllocatorState", "_MemPool", "_cuda_beginAllocateToPool",
        "_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool", "_cuda_releasePool",
    ),
}  # fmt: skip


def _cuda_only(c: ModuleType) -> dict[str, Any]:
    """Return the functions and modules that only `torch.cuda` uses, by name in `torch._C`."""

    def memory_info(index: int) -> tuple[int, int]:
        free, total = c._accelerator_getMemoryInfo(index)
        return free, total

    def sleep(cycles: int) -> None:
        stream_id, index, _ = _numbers(
            c._accelerator_getStream(c._accelerator_getDeviceIndex())
        )
        device.library.sim_sleep(index, stream_id, max(1, cycles // 1_000_000))

    host = HostMemory()
    sync_debug_mode = 0

    def set_sync_debug_mode(mode: int) -> None:
        nonlocal sync_debug_mode
        sync_debug_mode = mode

    return {
        **data_parallel.FUNCTIONS,
        "_graph_pool_handle": _new_pool,
        "_host_emptyCache": lambda: None,
        "_nccl_version": lambda: 2 << 32 | 27 << 16 | 3,
        "_nccl_version_suffix": lambda: b"",
        "_cuda_sleep": sleep,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_set_sync_debug_mode": set_sync_debug_mode,
        "_cuda_get_sync_debug_mode": lambda: sync_debug_mode,
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_record_memory_history": lambda *_, **__: None,
        "_cuda_hostMemoryStats": dict,
        "_cuda_resetPeakHostMemoryStats": lambda: None,
        "_cuda_resetAccumulatedHostMemoryStats": lambda: None,
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_record_untuned_is_enabled": lambda: False,
        "_nvtx": SimpleNamespace(
            rangePushA=ranges.range_push,
            rangePop=ranges.range_pop,
            rangeStartA=ranges.range_start,
            rangeEnd=ranges.range_end,
            markA=ranges.mark,
        ),
        "_cudart": SimpleNamespace(
            cudaMemGetInfo=memory_info,
            cudaError=SimpleNamespace(success=0),
            cudaGetErrorString=str,
            cudaProfilerStart=lambda: 0,
            cudaProfilerStop=lambda: 0,
            cudaHostRegister=host.register,
            cudaHostUnregister=host.unregister,
        ),
    }
