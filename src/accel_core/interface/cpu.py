"""`CPUAccelerator`: the CPU behind the common accelerator interface, so that the same
script runs on every machine.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from accel_core import hardware
from accel_core.backend import Backend
from accel_core.interface import Accelerator
from accel_core.interface.devices import Device
from accel_core.interface.records import DeviceProperties
from accel_core.interface.streams import HostEvent, HostStream
from accel_core.packages import is_installed
from accel_core.settings import Variable, parse_whole_number

if TYPE_CHECKING:
    import torch

#: Variables that launchers set: the number of ranks on this host, and this rank's number
#: on the host.
LOCAL_SIZE = Variable("LOCAL_SIZE", parse_whole_number, 0)
LOCAL_RANK = Variable("LOCAL_RANK", parse_whole_number, 0)


class CPUAccelerator(Accelerator):
    """The accelerator for the CPU. torch has one CPU device, `"cpu"`, regardless of the index.

    The device count is `LOCAL_SIZE` if a launcher sets it, and otherwise the number of
    NUMA nodes that have cores, which is a sensible number of ranks on the host. The
    index of the current device is the index that `set_device` selected in this thread,
    or otherwise `LOCAL_RANK`. The index is taken modulo the device count, so that more
    ranks than NUMA nodes share the nodes. Selecting a device does not bind the process
    to cores.

    Amounts of memory refer to this process. Its allocated memory is its resident set
    size.
    """

    def __init__(self, backend: Backend | None = None) -> None:
        super().__init__(backend)
        self._selected = threading.local()
        self._nodes = hardware.numa_node_count()
        #: The kernel's high-water mark in bytes, if it could not be reset.
        self._old_high_water_mark = 0
        #: The largest resident set in bytes that a sample found.
        self._sampled_peak = 0
        # The classes also derive from torch's, so that `isinstance` works with those.
        cpu = self._torch.cpu
        event_members = {"__doc__": HostEvent.__doc__}
        self.Event: Any = type("Event", (HostEvent, cpu.Event), event_members)
        stream_members = {"__doc__": HostStream.__doc__, "_event_class": self.Event}
        self.Stream: Any = type("Stream", (HostStream, cpu.Stream), stream_members)

    # Nature

    def is_synchronized_device(self) -> bool:
        """Return True: every call on the CPU returns only after its work is done."""
        return True

    def is_available(self) -> bool:
        """Return True, because every machine has a CPU."""
        return True

    # Devices

    def _name_at(self, index: int | None) -> str:
        super()._name_at(index)  # raises an error for a negative index
        return "cpu"

    def _check_range(self, index: int) -> None:
        self._name_at(index)

    def device_count(self) -> int:
        """Return `LOCAL_SIZE` if it is set, and otherwise the number of NUMA nodes that
        have cores, at least 1.

        Raises `SettingError` if `LOCAL_SIZE` is not a number.
        """
        return LOCAL_SIZE.read(os.environ) or self._nodes

    def current_device(self) -> int:
        """Return the index that `set_device` selected in this thread, or otherwise
        `LOCAL_RANK`, modulo the device count.

        Raises `SettingError` if `LOCAL_RANK` is not a number.
        """
        index: int | None = getattr(self._selected, "index", None)
        if index is None:
            index = LOCAL_RANK.read(os.environ)
        return index % self.device_count()

    def set_device(self, device_index: Device = None, device: Device = None) -> None:
        """Set the index that `current_device` returns. No torch device is selected.

        An index above the device count is accepted, because a host may run more ranks
        than it has NUMA nodes. Raises `InvalidDeviceError`, a `ValueError`, for a
        negative index or a device of another type.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        self._selected.index = self._checked_index(device_index)

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the CPU's model name, the amount of memory that the process may use,
        and the number of logical cores.
        """
        device_index = self._merge_device_arguments(device_index, device)
        # Before torch 2.11, and on some systems, a name is unknown.
        name = self._cpu_features().get("cpu_name")
        name = name or platform.processor() or platform.machine()
        return DeviceProperties(
            name=str(name),
            total_memory=self.total_memory(device_index),
            multiprocessors=os.cpu_count(),
        )

    def _cpu_features(self) -> dict[str, Any]:
        """Return the CPU features that torch reports, or an empty dictionary before torch 2.11."""
        if not hasattr(self._torch.cpu, "get_capabilities"):
            return {}
        return dict(self._torch.cpu.get_capabilities())

    # Random numbers

    def default_generator(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Generator:
        """Return torch's only CPU generator. The index is ignored."""
        self._check_device_argument(device_index, device)
        return self._torch.default_generator

    # Streams

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """Return a context manager in which `current_stream` returns `stream`. `None`
        changes nothing.

        The CPU has one queue, so this does not change the order of work.
        """
        return self._torch.cpu.stream(stream)

    def current_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the stream that `stream` or `set_stream` selected, or otherwise the
        default stream.
        """
        self._check_device_argument(device_index, device)
        current: Any = self._torch.cpu.current_stream()
        # torch's own default stream lacks `synchronize`.
        if isinstance(current, HostStream):
            return cast("torch.Stream", current)
        return self._only_stream

    def default_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the CPU's only stream."""
        self._check_device_argument(device_index, device)
        return self._only_stream

    # Memory

    def memory_allocated(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the memory in bytes that the process uses, which is its resident set size."""
        self._check_device_argument(device_index, device)
        size = resident_size()
        self._sampled_peak = max(self._sampled_peak, size)
        return size

    def max_memory_allocated(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the peak resident set size in bytes since the process started or since
        the last reset.

        If the kernel's high-water mark cannot be reset, peaks above the old mark are
        exact, and lower peaks are the maximum of the samples that members took.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        self.memory_allocated(device_index)  # takes a sample
        mark = high_water_mark()
        has_risen_since_reset = mark > self._old_high_water_mark
        if has_risen_since_reset:
            return max(mark, self._sampled_peak)
        return self._sampled_peak

    def reset_peak_memory_stats(
        self, device_index: Device = None, device: Device = None
    ) -> None:
        """Reset the peak memory to the amount in use now. On Linux, this also resets
        the process's high-water mark (VmHWM).
        """
        self._check_device_argument(device_index, device)
        self._old_high_water_mark = high_water_mark()
        reset_peak = "5"  # man 5 proc, /proc/pid/clear_refs
        with suppress(OSError):  # not Linux, or not permitted here
            _CLEAR_REFS.write_text(reset_peak)
            self._old_high_water_mark = 0
        self._sampled_peak = resident_size()

    def total_memory(self, device_index: Device = None, device: Device = None) -> int:
        """Return the host's memory in bytes, or the cgroup (container) limit if that is lower."""
        self._check_device_argument(device_index, device)
        total, _available = total_and_available_memory()
        limit = hardware.cgroup_memory_limit()
        if not limit:
            return total
        return min(total, limit)

    def mem_get_info(
        self, device_index: Device = None, device: Device = None
    ) -> tuple[int, int]:
        """Return the host's `(available, total)` memory in bytes, or that of the cgroup
        if it has less.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        total = self.total_memory(device_index)
        _total, available = total_and_available_memory()
        available_in_cgroup = hardware.cgroup_memory_available()
        if available_in_cgroup is not None:
            available = min(available, available_in_cgroup)
        return available, total

    #: Host memory is not copied to a device here, so pinning it would only cost time.
    _supports_pinned_memory = False

    # Data types

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Return True: on a CPU without bfloat16 instructions, torch computes in
        float32 and rounds the results.

        With `including_emulation=False`, return `is_bf16_native()`.
        """
        return including_emulation or self.is_bf16_native()

    def is_bf16_native(self) -> bool:
        """Return whether oneDNN has bfloat16 kernels for this CPU."""
        features = ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16")
        return self._has_onednn_kernels("bf16", cpu_features=features)

    def is_fp16_supported(self) -> bool:
        """Return whether oneDNN has float16 kernels for this CPU."""
        features = ("avx512_fp16", "amx_fp16", "fp16_arith")
        return self._has_onednn_kernels("fp16", cpu_features=features)

    def _has_onednn_kernels(
        self, number_format: str, *, cpu_features: Sequence[str]
    ) -> bool:
        """Return whether oneDNN has kernels for the number format.

        For a torch without oneDNN, the result is whether the CPU has one of
        `cpu_features`.
        """
        name = f"_is_mkldnn_{number_format}_supported"
        with suppress(AttributeError, RuntimeError):  # a torch built without oneDNN
            is_supported = getattr(self._torch.ops.mkldnn, name)
            return bool(is_supported())
        reported = self._cpu_features()
        return any(bool(reported.get(feature)) for feature in cpu_features)

    # Launching

    def communication_backend_name(self) -> str:
        """Return `"ccl"` if oneCCL's bindings are installed, and otherwise the declared
        backend, `"gloo"`.

        The bindings are not imported. The result is also `"gloo"` if the bindings
        failed when a process group was created.
        """
        if self._overriding_communication_backend:
            return super().communication_backend_name()
        if is_installed("oneccl_bindings_for_pytorch"):
            return "ccl"
        return super().communication_backend_name()


# --- The memory of this process, as the operating system reports it -------------------

_STATUS = Path("/proc/self/status")
_MEMORY = Path("/proc/meminfo")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def resident_size() -> int:
    """Return this process's resident set size in bytes."""
    size = _byte_sizes(_STATUS).get("VmRSS")
    if size:
        return size
    return int(_process_memory().rss)


def total_and_available_memory() -> tuple[int, int]:
    """Return the machine's total memory and the memory available without swapping, both
    in bytes.
    """
    sizes = _byte_sizes(_MEMORY)
    if sizes:
        return sizes["MemTotal"], sizes["MemAvailable"]
    import psutil

    virtual = psutil.virtual_memory()
    return int(virtual.total), int(virtual.available)


def _byte_sizes(file: Path) -> dict[str, int]:
    """Return the sizes in bytes, by name, from the lines `Name: 123 kB` of a file in
    Linux's /proc. The result is empty on other systems.
    """
    sizes = {}
    for line in hardware.read_text(str(file)).splitlines():
        if line.endswith(" kB"):
            name, kilobytes, _ = line.split()
            sizes[name.rstrip(":")] = int(kilobytes) * 1024
    return sizes


def _process_memory() -> Any:
    """Return this process's memory from psutil, which is a dependency on systems
    without /proc.
    """
    import psutil

    return psutil.Process().memory_info()


def high_water_mark() -> int:
    """Return the peak memory usage of this process in bytes, or 0 if the system does
    not report it.
    """
    mark = _byte_sizes(_STATUS).get("VmHWM")
    if mark:  # Only Linux has the mark, and some containers lack it.
        return mark
    try:
        import resource
    except ImportError:  # Windows
        return int(getattr(_process_memory(), "peak_wset", 0))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak  # macOS reports bytes; other systems report kibibytes.
    return peak * 1024
