"""Add functions to `torch._C` that `torch.xpu` and `torch.cuda` call but that torch's CPU build lacks.

The replacements are installed while torch is being imported, so they may use other torch modules only when
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

#: Whether this process was forked after the runtime had started.
_is_forked_child = False


def install(torch_c: ModuleType, name: str) -> None:
    """Add the functions and classes that `torch.<name>` needs to `torch_c`, the module `torch._C`."""
    title = name.capitalize()  # "Cuda", as in `_CudaStreamBase`
    classes = {
        f"_{title}StreamBase": _make_stream_base(torch_c, name),
        f"_{title}EventBase": _make_event_base(torch_c, name),
        f"_{title}DeviceProperties": Properties,
        f"_{name.upper()}Graph": _make_graph_base(torch_c),
    }
    functions = {
        f"_{name}_{suffix}": function
        for suffix, function in _functions_of_runtime(torch_c, name).items()
    }
    unusable_classes = {
        class_name: _make_unusable_class(class_name)
        for class_name in _UNUSABLE_CLASSES[name]
    }
    members = {**unusable_classes, **classes, **functions}
    if name == "cuda":
        members.update(_cuda_only_members(torch_c))
    for member_name, member in members.items():
        setattr(torch_c, member_name, member)
    torch_c.__getattr__ = functools.partial(_raise_missing, name)  # type: ignore[method-assign]


class NotSimulatedError(UnsupportedError, AttributeError):
    """An error raised when a program uses part of the vendor's torch build that is not simulated.

    The class is a subclass of `AttributeError`, so `hasattr` returns False for such names.
    """


def _raise_missing(name: str, attribute: str) -> Any:
    """Raise the error for an attribute that `torch._C` lacks on a simulated `torch.<name>`.

    The error is a `NotSimulatedError` if the attribute belongs to the vendor's build of torch, and a plain
    `AttributeError` otherwise.
    """
    vendor_prefixes = (f"_{name}_", f"_{name.upper()}", f"_{name.title()}", "_nccl_")
    if attribute.startswith(vendor_prefixes):
        raise NotSimulatedError(
            f"torch._C.{attribute} is not simulated, because it needs the vendor's libraries, which torch's "
            f"CPU build does not have. Do not use torch._C.{attribute} on a simulated {name} device."
        )
    raise AttributeError(f"module 'torch._C' has no attribute {attribute!r}")


#: Functions of `torch._C` with an equivalent that works for every accelerator. For example, `_cuda_setDevice`
#: is equivalent to `_accelerator_setDeviceIndex`.
_ACCELERATOR_FUNCTIONS = {
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


def _functions_of_runtime(
    torch_c: ModuleType, name: str
) -> dict[str, Callable[..., Any]]:
    """Return the functions that `torch.<name>` calls in `torch._C`, by name without the prefix `_<name>_`."""
    memory_fractions: dict[int, float] = {}

    def synchronize(index: int | None = None) -> None:
        if index is None or index == -1:
            index = torch_c._accelerator_getDeviceIndex()
        torch_c._accelerator_synchronizeDevice(index)

    def set_memory_fraction(fraction: float, index: int) -> None:
        memory_fractions[index] = fraction
        device.library.sim_set_fraction(index, fraction)

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        stream = torch_c.Stream(
            stream_id=stream_id, device_index=device_index, device_type=device_type
        )
        torch_c._accelerator_setStream(stream)

    def get_current_stream(index: int) -> tuple[int, int, int]:
        return _stream_fields(torch_c._accelerator_getStream(index))

    def get_default_stream(index: int) -> tuple[int, int, int]:
        default_stream_id = 0
        _, _, device_type = get_current_stream(index)
        return default_stream_id, index, device_type

    accelerator_functions = {
        suffix: getattr(torch_c, f"_accelerator_{accelerator_suffix}")
        for suffix, accelerator_suffix in _ACCELERATOR_FUNCTIONS.items()
    }
    return {
        **accelerator_functions,
        "init": lambda: _start_runtime(name),
        "isInBadFork": lambda: _is_forked_child,
        "getDeviceCount": lambda: device.count,
        "synchronize": synchronize,
        "getCurrentStream": get_current_stream,
        "getDefaultStream": get_default_stream,
        "getCurrentRawStream": lambda index: (
            torch_c._accelerator_getStream(index).stream_id
        ),
        "setStream": set_stream,
        "isCurrentStreamCapturing": lambda: bool(device.library.sim_is_capturing()),
        "graph_pool_handle": _create_memory_pool,
        "setMemoryFraction": set_memory_fraction,
        "getMemoryFraction": lambda index: memory_fractions.get(index, 1.0),
        "canDeviceAccessPeer": lambda one, other: one != other,
        "getArchFlags": lambda: "",
        "getCompiledVersion": lambda: 0,
        "memorySnapshot": lambda *_: {"segments": [], "device_traces": []},
    }


def _start_runtime(name: str) -> None:
    """Start the runtime, and set the attributes of `torch.<name>` that torch's C++ code sets in a real build.

    Raises `RuntimeError` if no device is available.
    """
    if not device.count:
        raise RuntimeError(device.no_device_message())
    module = sys.modules[f"torch.{name}"]
    module.default_generators = device.default_generators()  # type: ignore[attr-defined]
    module._get_device_properties = Properties  # type: ignore[attr-defined]
    os.register_at_fork(after_in_child=_mark_as_forked)


def _mark_as_forked() -> None:
    """Note in a forked child process that the runtime cannot be used there."""
    global _is_forked_child
    _is_forked_child = True


def _create_memory_pool() -> tuple[int, int]:
    """Return the id of a new memory pool for graphs, in the form that torch's C functions use."""
    return device.library.sim_new_pool(), 0


def _stream_fields(stream: Any) -> tuple[int, int, int]:
    """Return a stream's id, device index and device type, in the form that torch's C functions use."""
    return stream.stream_id, stream.device_index, int(stream.device_type)


class Properties:
    """The properties of a simulated device, with the attributes that `torch.cuda` or `torch.xpu` define.

    Attributes that describe a physical chip or its location, such as `L2_cache_size` and `pci_bus_id`, are
    absent.
    """

    def __init__(self, index: int) -> None:
        self.name = device.name()
        self.total_memory = device.memory_sizes[index]
        self.major, self.minor = 9, 0  # the compute capability
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
            f"the properties of a simulated device do not include {name!r}"
        )

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"Properties({fields})"


def _make_stream_base(torch_c: ModuleType, name: str) -> type:
    """Return the base class of `torch.<name>.Stream`."""

    class StreamBase(torch_c.Stream):  # type: ignore[name-defined, misc]
        def __new__(
            cls,
            priority: int = 0,
            stream_ptr: int | None = None,
            **existing_stream: Any,
        ) -> Any:
            if "stream_id" in existing_stream:  # the stream already exists
                return super().__new__(cls, **existing_stream)
            index = torch_c._accelerator_getDeviceIndex()
            return super().__new__(
                cls, device=torch_c.device(name, index), priority=priority
            )

        # On a real device, the property is a native handle. A simulated stream has only its number.
        cuda_stream = sycl_queue = property(lambda self: self.stream_id)

    return StreamBase


def _make_event_base(torch_c: ModuleType, name: str) -> type:
    """Return the base class of `torch.<name>.Event`."""

    class EventBase(torch_c.Event):  # type: ignore[name-defined, misc]
        def __new__(cls, enable_timing: bool = False, **_: Any) -> Any:
            self = super().__new__(cls, device=name, enable_timing=enable_timing)
            # torch measures time only between instances of `torch.Event` itself, not of a subclass.
            self._timing_event = torch_c.Event(device=name, enable_timing=enable_timing)
            return self

        def record(self, stream: Any) -> None:
            # The stream keeps the order, so the timing event is complete when this event is.
            self._timing_event.record(stream)
            super().record(stream)

        def elapsed_time(self, end: Any) -> float:
            return float(self._timing_event.elapsed_time(end._timing_event))

    return EventBase


def _make_graph_base(torch_c: ModuleType) -> type:
    """Return the base class of the graph class in `torch.<name>`."""

    class GraphBase(torch_c._acceleratorGraph):  # type: ignore[name-defined, misc]
        def capture_begin(
            self, pool: Any = None, capture_error_mode: str = "default"
        ) -> None:
            super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)

    return GraphBase


def _make_unusable_class(name: str) -> type:
    """Return a class named `name` whose constructor raises `NotImplementedError`."""

    def new(cls: type, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"torch._C.{name} is not simulated")

    return type(name, (), {"__new__": new})


#: The classes and functions that torch imports from `torch._C` but that are not simulated.
_UNUSABLE_CLASSES = {
    "xpu": (
        "_xpu_XPUAllocator", "_XPUMemPool", "_xpu_beginAllocateCurrentThreadToPool", "_xpu_endAllocateToPool",
        "_xpu_releasePool",
    ),
    "cuda": (
        "_cuda_CUDAAllocator", "_cuda_CUDAAllocator_AllocatorState", "_MemPool", "_cuda_beginAllocateToPool",
        "_cuda_beginAllocateCurrentThreadToPool", "_cuda_endAllocateToPool", "_cuda_releasePool",
    ),
}  # fmt: skip


def _encode_nccl_version(major: int, minor: int, patch: int) -> int:
    """Return an NCCL version as the integer that `torch.cuda.nccl.version` decodes."""
    return major << 32 | minor << 16 | patch


def _cuda_only_members(torch_c: ModuleType) -> dict[str, Any]:
    """Return the members of `torch._C` that only `torch.cuda` uses, by name."""

    def get_memory_info(index: int) -> tuple[int, int]:
        free, total = torch_c._accelerator_getMemoryInfo(index)
        return free, total

    host_memory = HostMemory()
    sync_debug_mode = 0

    def set_sync_debug_mode(mode: int) -> None:
        nonlocal sync_debug_mode
        sync_debug_mode = mode

    return {
        **data_parallel.FUNCTIONS,
        "_graph_pool_handle": _create_memory_pool,
        "_host_emptyCache": lambda: None,
        "_nccl_version": lambda: _encode_nccl_version(2, 27, 3),
        "_nccl_version_suffix": lambda: b"",
        "_cuda_sleep": device.sleep_cycles,
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
            cudaMemGetInfo=get_memory_info,
            cudaError=SimpleNamespace(success=0),
            cudaGetErrorString=str,
            cudaProfilerStart=lambda: 0,
            cudaProfilerStop=lambda: 0,
            cudaHostRegister=host_memory.register,
            cudaHostUnregister=host_memory.unregister,
        ),
    }
