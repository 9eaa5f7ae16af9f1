"""`CPUAccelerator`: the processor behind the same interface, so that one script runs everywhere."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from accel_core import machine
from accel_core._support.packages import is_installed
from accel_core.accelerators import Accelerator
from accel_core.accelerators.streams import HostEvent, HostStream
from accel_core.backend import Backend
from accel_core.settings import Variable, whole_number

if TYPE_CHECKING:
    import torch
    from torch.types import Device

    from accel_core.accelerators.records import DeviceProperties

#: Set by launchers: the ranks on this host, and which of them this is.
LOCAL_SIZE = Variable("LOCAL_SIZE", whole_number, 0)
LOCAL_RANK = Variable("LOCAL_RANK", whole_number, 0)


class CPUAccelerator(Accelerator):
    """The processor. torch knows one CPU device, `"cpu"`, whatever the index.

    The device count is `LOCAL_SIZE` where a launcher sets it, else the number of NUMA nodes that have
    cores: as many ranks as that make sense on the host. The index of the current device is what
    `set_device` selected in this thread, else `LOCAL_RANK`, always folded into the count, so that more
    ranks than nodes share them. Selecting a device binds nothing.

    Memory is that of the process: allocated is its resident set.
    """

    def __init__(self, backend: Backend | None = None) -> None:
        super().__init__(backend)
        self._selected = threading.local()
        self._memory = PeakMemory()
        cpu = self._torch.cpu
        self.Event: Any = type("Event", (HostEvent, cpu.Event), {"__doc__": HostEvent.__doc__})
        self.Stream: Any = type(
            "Stream", (HostStream, cpu.Stream), {"__doc__": HostStream.__doc__, "_event": self.Event}
        )

    # Nature

    def is_synchronized_device(self) -> bool:
        """True: a call returns when its work is done."""
        return True

    def is_available(self) -> bool:
        """True."""
        return True

    # Devices

    def _make_name(self, index: int | None) -> str:
        super()._make_name(index)  # refuses a negative one
        return "cpu"

    def _check_range(self, index: int) -> None:
        self._make_name(index)

    def device_count(self) -> int:
        """`LOCAL_SIZE`, else how many NUMA nodes have cores; at least 1."""
        return LOCAL_SIZE.read(os.environ) or self._nodes

    @cached_property
    def _nodes(self) -> int:
        return machine.numa_node_count()

    def current_device(self) -> int:
        """The index selected in this thread, else `LOCAL_RANK`, folded into the device count.

        Raises `SettingError` when `LOCAL_RANK` is not a number.
        """
        selected: int | None = getattr(self._selected, "index", None)
        return (LOCAL_RANK.read(os.environ) if selected is None else selected) % self.device_count()

    def set_device(self, device_index: int | str | torch.device) -> None:
        """Note the index for `current_device`; torch has nothing to select.

        An index beyond the count is taken, for ranks may outnumber NUMA nodes. Raises `InvalidDeviceError`, a
        `ValueError`, when it is negative or another device is named.
        """
        self._selected.index = self._checked_index(device_index)

    def device_properties(self, device_index: Device = None) -> DeviceProperties:
        """The processor's name, the memory it may use and its logical cores."""
        import platform

        from accel_core.accelerators.records import DeviceProperties

        name = self._features().get("cpu_name") or platform.processor() or platform.machine()
        total = self.total_memory(device_index)
        return DeviceProperties(name=str(name), total_memory=total, multiprocessors=os.cpu_count())

    def _features(self) -> dict[str, Any]:
        """Processor features that torch reports; empty before torch 2.11."""
        ask = getattr(self._torch.cpu, "get_capabilities", dict)
        return dict(ask())

    # Random numbers

    def default_generator(self, device_index: Device) -> torch.Generator:
        """The one CPU generator of torch, whatever the index."""
        self._index_or_none(device_index)
        return self._torch.default_generator

    # Streams

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """A context manager that makes `stream` the current one; `None` changes nothing."""
        return self._torch.cpu.stream(stream)

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream` the one that `current_stream` gives; all are the one queue."""
        self.stream(stream).__enter__()  # torch.cpu has no set_stream: its context sets it, and is not left

    def current_stream(self, device_index: Device = None) -> torch.Stream:
        """The stream of `stream`, else the default one."""
        self._index_or_none(device_index)
        current: Any = self._torch.cpu.current_stream()
        # torch's own default stream lacks `synchronize`, so ours stands for it.
        return cast("Any", current) if isinstance(current, HostStream) else self._only_stream

    def default_stream(self, device_index: Device = None) -> torch.Stream:
        """The default stream."""
        self._index_or_none(device_index)
        return self._only_stream

    # Memory

    def memory_allocated(self, device_index: Device = None) -> int:
        """Bytes that the process has in memory: its resident set."""
        self._index_or_none(device_index)
        return self._memory.sample()

    def max_memory_allocated(self, device_index: Device = None) -> int:
        """Peak of the resident set since the process began, or since the last reset."""
        self.memory_allocated(device_index)  # a sample too
        return self._memory.peak()

    def reset_peak_memory_stats(self, device_index: Device = None) -> None:
        """Start the peak again; on Linux this is the process's own high-water mark (VmHWM)."""
        self._index_or_none(device_index)
        self._memory.reset()

    def total_memory(self, device_index: Device = None) -> int:
        """Bytes of the host, or of the control group (container) where that allows less."""
        self._index_or_none(device_index)
        return min(filter(None, (memory()[0], machine.cgroup_memory_limit())))

    def mem_get_info(self, device_index: Device = None) -> tuple[int, int]:
        """`(available, total)` bytes of the host, or of the control group where that has less."""
        total = self.total_memory(device_index)
        free, left = memory()[1], machine.cgroup_memory_available()
        return free if left is None else min(free, left), total

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        # Nothing copies out of host memory here, so locking it would only cost.
        return tensor

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return tensor.new_empty(shape)

    # Data types

    def is_bf16_supported(self) -> bool:
        """True: what a processor has no instructions for, torch computes in float32 and rounds."""
        return True

    def is_bf16_native(self) -> bool:
        """Whether oneDNN has bfloat16 kernels for this processor."""
        return self._onednn("bf16", "avx512_bf16", "amx_bf16", "sve_bf16", "bf16")

    def is_fp16_supported(self) -> bool:
        """Whether oneDNN has float16 kernels for this processor."""
        return self._onednn("fp16", "avx512_fp16", "amx_fp16", "fp16_arith")

    def _onednn(self, kind: str, *features: str) -> bool:
        try:
            return bool(getattr(self._torch.ops.mkldnn, f"_is_mkldnn_{kind}_supported")())
        except (AttributeError, RuntimeError):  # a torch built without oneDNN
            return any(bool(self._features().get(feature)) for feature in features)

    # Launching

    def communication_backend_name(self) -> str:
        """`"ccl"` where oneCCL's bindings are installed, else what is declared: `"gloo"`.

        Asking imports nothing.
        """
        if not self._stated_communication and is_installed("oneccl_bindings_for_pytorch"):
            return "ccl"
        return super().communication_backend_name()


# --- this process's memory, as the operating system reports it -------------------------------------

_STATUS = Path("/proc/self/status")
_MEMORY = Path("/proc/meminfo")
_CLEAR = Path("/proc/self/clear_refs")


def resident() -> int:
    """Bytes of this process in memory now."""
    return _counted(_STATUS).get("VmRSS") or int(_process().rss)


def memory() -> tuple[int, int]:
    """Bytes of memory that this machine has, and those that are available without swapping."""
    if counted := _counted(_MEMORY):
        return counted["MemTotal"], counted["MemAvailable"]
    import psutil

    found = psutil.virtual_memory()
    return int(found.total), int(found.available)


def _counted(file: Path) -> dict[str, int]:
    """The lines `Name:  123 kB` of a file of Linux's /proc, in bytes; none on other systems."""
    lines = (line.split() for line in machine.read_text(str(file)).splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(number) * 1024 for name, number, _ in lines}


def _process() -> Any:
    """Memory of this process as psutil counts it: a dependency where the system has no /proc."""
    import psutil

    return psutil.Process().memory_info()


def high_water() -> int:
    """The most bytes that this process ever had in memory as the system counts; 0 where it does not."""
    if counted := _counted(_STATUS).get("VmHWM"):  # not on other systems, nor in some containers
        return counted
    try:
        import resource
    except ImportError:  # Windows
        return int(getattr(_process(), "peak_wset", 0))
    # macOS counts bytes, the others kibibytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class PeakMemory:
    """The peak of resident memory since the process began, or since `reset`.

    Linux keeps a high-water mark and lets a process start it again, which catches peaks between two
    questions. Where it may not be started again, a peak above the old mark is still seen exactly, and
    one below it only as far as somebody asked at the time.
    """

    def __init__(self) -> None:
        self._floor = 0
        self._sampled = 0

    def sample(self) -> int:
        """Bytes in memory now, noted for the peak."""
        now = resident()
        self._sampled = max(self._sampled, now)
        return now

    def peak(self) -> int:
        """The peak in bytes, as far as `sample` tells."""
        mark = high_water()
        return max(mark, self._sampled) if mark > self._floor else self._sampled

    def reset(self) -> None:
        """Start again from what is in memory now."""
        try:
            _CLEAR.write_text("5")  # man 5 proc: resets the peak resident set size
            self._floor = 0
        except OSError:  # not Linux, or not permitted here
            self._floor = high_water()
        self._sampled = resident()
