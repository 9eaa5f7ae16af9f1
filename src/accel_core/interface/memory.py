"""Sections of the interface: device memory and pinned host memory. Amounts are integers
in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from accel_core.errors import HostMemoryError
from accel_core.interface.devices import Device, Devices, has_parameter

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Memory(Devices):
    """The members for device memory.

    A subclass defines `memory_allocated`, `max_memory_allocated`,
    `reset_peak_memory_stats` and `total_memory`. If the device has a caching allocator,
    the subclass also defines `memory_reserved` and `max_memory_reserved`.
    """

    def memory_allocated(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the memory in bytes that tensors occupy on the device."""
        raise self._unsupported("memory_allocated")

    def max_memory_allocated(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the peak of `memory_allocated` in bytes since the process started or
        since the last reset.
        """
        raise self._unsupported("max_memory_allocated")

    def memory_reserved(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the device memory in bytes that the allocator has reserved, whether or
        not it is in use. Without a caching allocator, return `memory_allocated()`.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        return self.memory_allocated(device_index)

    def max_memory_reserved(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the peak of `memory_reserved` in bytes since the process started or
        since the last reset.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        return self.max_memory_allocated(device_index)

    def reset_peak_memory_stats(
        self, device_index: Device = None, device: Device = None
    ) -> None:
        """Reset all peak memory statistics to the amounts in use now."""
        raise self._unsupported("reset_peak_memory_stats")

    def reset_max_memory_allocated(
        self, device_index: Device = None, device: Device = None
    ) -> None:
        """Reset every memory peak. This is the older name of `reset_peak_memory_stats`."""
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        self.reset_peak_memory_stats(device_index)

    def memory_cached(self, device_index: Device = None, device: Device = None) -> int:
        """Return `memory_reserved()`, the newer name of this member, without torch's
        deprecation warning.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        return self.memory_reserved(device_index)

    def max_memory_cached(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return `max_memory_reserved()`, the newer name of this member, without
        torch's deprecation warning.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        return self.max_memory_reserved(device_index)

    def reset_max_memory_cached(
        self, device_index: Device = None, device: Device = None
    ) -> None:
        """Reset every memory peak. This is an older name of `reset_peak_memory_stats`."""
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        self.reset_peak_memory_stats(device_index)

    def reset_accumulated_memory_stats(
        self, device_index: Device = None, device: Device = None
    ) -> None:
        """Reset the totals of memory allocated and freed so far to 0. By default, no
        totals are counted, so this does nothing.
        """
        self._check_device_argument(device_index, device)

    def memory_summary(
        self,
        device_index: Device = None,
        abbreviated: bool = False,
        device: Device = None,
    ) -> str:
        """Return `memory_stats` as a human-readable table, like `torch.cuda.memory_summary`.

        A dash marks a number that the device does not report. `abbreviated` omits the
        allocator's large and small pools.
        """
        index = self._index(device_index, device)
        stats = self.memory_stats(index)
        if "allocated_bytes.all.current" not in stats:
            # The vendor reports none of torch's keys.
            stats = {**self._basic_memory_stats(index), **stats}
        lines = [f"Memory of {self.device_name(index)}"]
        pools = ("all",) if abbreviated else _POOLS
        lines += _table_lines(stats, pools)
        free_and_total = self._call_if_supported(self.mem_get_info, index)
        if free_and_total is not None:
            free, total = free_and_total
            lines.append(
                f"free memory: {_format_bytes(free)} of {_format_bytes(total)}"
            )
        return _Summary("\n".join(lines))

    def memory_stats(
        self, device_index: Device = None, device: Device = None
    ) -> Mapping[str, Any]:
        """Return memory statistics as a flat mapping with torch's keys, such as
        `allocated_bytes.all.current`, and the vendor's keys.

        If the vendor provides no statistics, or reports none before its allocator has
        started, the result contains the current and peak amounts that the backend
        reports.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        arguments = []
        if device_index is not None:
            arguments.append(device_index)
        stats = self._query_vendor_or_torch(
            "memory_stats", *arguments, torch_name="memory_stats"
        )
        return stats or self._basic_memory_stats(device_index)

    def _basic_memory_stats(self, index: Device) -> Mapping[str, Any]:
        """Return the current and peak amounts of memory that the backend reports, with
        torch's keys.
        """
        amounts = {
            "allocated_bytes.all.current": self.memory_allocated,
            "allocated_bytes.all.peak": self.max_memory_allocated,
            "reserved_bytes.all.current": self.memory_reserved,
            "reserved_bytes.all.peak": self.max_memory_reserved,
        }
        stats = {}
        for key, member in amounts.items():
            amount = self._call_if_supported(member, index)
            if amount is not None:  # An unknown amount has no key, because 0 is wrong.
                stats[key] = amount
        return stats

    def mem_get_info(
        self, device_index: Device = None, device: Device = None
    ) -> tuple[int, int]:
        """Return the device's `(free, total)` memory in bytes, as the vendor or torch reports it.

        If neither reports it, all memory that this process has not reserved counts as
        free, because the memory of other processes is unknown. Raises
        `UnsupportedError` if the driver rejects the query, as for Intel's integrated
        GPUs.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        free_and_total: tuple[int, int] | None = self._query_vendor_or_torch(
            "mem_get_info", device_index, torch_name="get_memory_info"
        )
        if free_and_total is not None:
            return free_and_total
        if self._vendor_attribute("mem_get_info"):  # The driver has rejected the query.
            raise self._unsupported("mem_get_info", self.refused["mem_get_info"])
        total = self.total_memory(device_index)
        free = max(0, total - self.memory_reserved(device_index))
        return free, total

    def available_memory(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the device memory in bytes that a new process could allocate, as far
        as the vendor reports it.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        free, _total = self.mem_get_info(device_index)
        return free

    def empty_cache(self) -> None:
        """Return unused cached memory to the device. Do nothing if there is no cache."""

    def set_per_process_memory_fraction(
        self, fraction: float, device_index: Device = None, device: Device = None
    ) -> None:
        """Limit this process to `fraction` (0 to 1) of the device's memory."""
        set_fraction = self._vendor_attribute("set_per_process_memory_fraction")
        if set_fraction is None:
            raise self._unsupported("set_per_process_memory_fraction")
        index = self._index_or_none(device_index, device)
        # The guard is needed even if the vendor's function takes an index, because
        # torch_npu leaves that device selected.
        with self.device_guard(index):
            if index is not None and has_parameter(set_fraction, "device"):
                set_fraction(float(fraction), index)
            else:
                set_fraction(float(fraction))


#: Texts of the errors of torch (2.13) and TorchTPU for a device without an allocator of
#: pinned memory, or without hooks that name such an allocator.
_NO_PINNED_ALLOCATOR = (
    "no pinned memory allocator",
    "Need to provide pin_memory allocator",  # torch 2.6
    "register PrivateUse1HooksInterface",
    "getPinnedMemoryAllocator",
    "host memory allocator is not implemented",
)


def is_pinning_unsupported(error: RuntimeError) -> bool:
    """Return whether torch's error means that the device does not support pinned
    memory, rather than that the host ran out of memory.
    """
    if isinstance(error, NotImplementedError):
        return True
    return any(text in str(error) for text in _NO_PINNED_ALLOCATOR)


class Pinning(Devices):
    """The members for pinned host memory. A copy from pinned memory to the device can
    overlap other work.

    A subclass may override `_torch_pin_memory`, `_torch_empty_pinned` and
    `_torch_is_pinned`. All other members use these three. None of the three passes a
    device to torch, because torch deprecated that argument.
    """

    def _pin_manager(self) -> Any:
        """Return the manager of memory that this package pins, which is `None` by
        default. An integration overrides this member.
        """
        return None

    @cached_property
    def _supports_pinned_memory(self) -> bool:
        """Whether torch provides pinned memory for this device. The trial runs at first
        use.

        A device that does not support pinned memory raises an error. For Metal, torch
        returns memory of the device instead (pytorch#181374).
        """
        try:
            tensor = self._torch.empty(1, device="cpu", pin_memory=True)
        except RuntimeError as error:
            # Any other error recurs in the caller, which reports it.
            return not is_pinning_unsupported(error)
        return bool(tensor.device.type == "cpu")

    def _torch_pin_memory(self, tensor: Tensor) -> Tensor:
        """Return a pinned copy of a host tensor. Return the tensor itself if the device
        does not support pinned memory.
        """
        if not self._supports_pinned_memory:
            return tensor
        return self._call_explaining_host_limit(tensor.pin_memory)

    def _torch_empty_pinned(self, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return an uninitialized pinned tensor with the given shape and `tensor`'s
        data type. It is not pinned if the device does not support pinned memory.
        """
        allocate = partial(
            tensor.new_empty, shape, pin_memory=self._supports_pinned_memory
        )
        return self._call_explaining_host_limit(allocate)

    def _call_explaining_host_limit(self, function: Callable[[], Tensor]) -> Tensor:
        """Call `function`, which pins memory. Raise `HostMemoryError` if the host's
        limit is reached.

        Drivers report that limit as "out of memory" of the device.
        """
        try:
            return function()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            raise HostMemoryError(
                f"{self.name}: pinned host memory ran out ({error}). The limit comes from "
                "the host (WSL2, `ulimit -l` or a container), not from the device. "
                "Next step: use less pinned memory, or pass pin_memory=False"
            ) from error

    def _torch_is_pinned(self, tensor: Tensor) -> bool:
        """Return whether the tensor's storage is pinned. The result is False if the
        device does not support pinned memory.
        """
        # Without a trial so far, nothing shows that the device lacks pinned memory.
        is_untried = "_supports_pinned_memory" not in vars(self)
        if is_untried or self._supports_pinned_memory:
            return bool(tensor.is_pinned())
        return False

    def pin_memory(
        self, tensor: Tensor, make_copy: bool = True, match_shape: bool = True
    ) -> Tensor:
        """Return pinned host memory for `tensor`.

        With `make_copy`, the memory contains the tensor's values. Otherwise `tensor` is
        only a template: the memory is uninitialized, and `match_shape=False` makes it
        one-dimensional.
        """
        manager = self._pin_manager()
        if manager:
            return manager.pin(tensor, make_copy=make_copy, match_shape=match_shape)
        if make_copy:
            return self._torch_pin_memory(tensor)
        shape = tuple(tensor.shape)
        if not match_shape:
            shape = (tensor.numel(),)
        return self._torch_empty_pinned(tensor, shape)

    def pin_empty(
        self, *size: Any, dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> Tensor:
        """Return an uninitialized pinned host tensor of the given size. The size is
        passed as in `torch.empty`.

        Raises `ValueError` if `device` is not the CPU.
        """
        device_type, _, _index = str(device).partition(":")
        if device_type != "cpu":
            raise ValueError(
                f"device={device!r} is not valid, expected 'cpu': pinned memory is host memory"
            )
        shape: tuple[int, ...] = size
        is_one_sequence = len(size) == 1 and isinstance(size[0], (tuple, list))
        if is_one_sequence:
            shape = tuple(size[0])
        template = self._torch.empty(0, dtype=dtype, device="cpu")
        manager = self._pin_manager()
        if hasattr(manager, "pin_empty"):
            return manager.pin_empty(template, shape)
        return self._torch_empty_pinned(template, shape)

    def pin_empty_like(
        self,
        tensor: Tensor,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Return an uninitialized pinned host tensor with `tensor`'s shape and, by
        default, its data type.

        Raises `ValueError` if `device` is not the CPU.
        """
        shape = tuple(tensor.shape)
        return self.pin_empty(shape, dtype=dtype or tensor.dtype, device=device)

    def is_pinned(self, tensor: Tensor) -> bool:
        """Return whether the tensor's storage is pinned."""
        manager = self._pin_manager()
        if manager and manager.is_pinned(tensor):
            return True
        return self._torch_is_pinned(tensor)

    def unpin_memory(self, tensor: Tensor) -> None:
        """Free memory that an integration pinned. For memory that torch pinned, do
        nothing: torch frees it with the last tensor.
        """
        manager = self._pin_manager()
        if manager:
            manager.unpin(tensor)

    def empty_host_cache(self) -> None:
        """Return unused pinned memory, which torch keeps for reuse, to the host.

        Do nothing if torch keeps none, which is the case before the device starts and
        before torch 2.12.
        """
        empty_host_cache = getattr(self._torch_accelerator, "empty_host_cache", None)
        if empty_host_cache is None:
            return
        has_tried_pinning = "_supports_pinned_memory" in vars(self)
        may_have_cached = has_tried_pinning or self.is_initialized()
        if may_have_cached and self._supports_pinned_memory:
            empty_host_cache()

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Pin `num_bytes` bytes of host memory at `address`. Return False if there is
        no device, or if the runtime has no such function.

        If the driver fails, the vendor's error is raised, such as torch's `CudaError`,
        a `RuntimeError`.
        """
        return self._call_runtime("HostRegister", address, num_bytes, 0)

    def unregister_host_memory(self, address: int) -> None:
        """Unpin host memory that `register_host_memory` pinned. If the driver fails,
        the vendor's error is raised.
        """
        self._call_runtime("HostUnregister", address)

    def _call_runtime(self, name: str, *arguments: int) -> bool:
        """Call a function of the vendor's runtime. Return False if there is no such
        function or no device.

        The runtime is `torch.<type>.<type>rt()`. torch uses this name for CUDA and
        ROCm, and vendors follow it: `cudart().cudaHostRegister`, `supart()`.
        """
        if not self.is_available():
            return False
        open_runtime = self._vendor_attribute(f"{self._device_type}rt")
        raise_for_status = self._vendor_attribute("check_error")
        if open_runtime is None or raise_for_status is None:
            return False
        function = getattr(open_runtime(), f"{self._device_type}{name}", None)
        if function is None:
            return False
        status = int(function(*arguments))
        raise_for_status(status)
        return True

    def pin_memory_alignment(self) -> int:
        """Return the alignment in bytes that `register_host_memory` requires, or 1 if
        any address is accepted.
        """
        return 1


#: The columns of the summary, by the last part of torch's keys, and the pools.
_COLUMNS = {
    "current": "now",
    "peak": "peak",
    "allocated": "ever taken",
    "freed": "ever freed",
}
_POOLS = ("all", "large_pool", "small_pool")


class _Summary(str):
    """A string whose line ends are displayed in notebooks."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(str(self))


def _table_lines(stats: Mapping[str, Any], pools: Sequence[str]) -> list[str]:
    """Return the lines of a table of `stats`, which has torch's keys."""
    rows = []
    for kind in _kinds_of_amounts(stats):
        for pool in pools:
            values = [stats.get(f"{kind}.{pool}.{column}") for column in _COLUMNS]
            if any(value is not None for value in values):
                rows.append(_table_row(kind, pool, values))
    header = _table_line("", list(_COLUMNS.values()))
    if not rows:
        return [header, "The device reports no memory statistics."]
    return [header, *rows]


def _kinds_of_amounts(stats: Mapping[str, Any]) -> list[str]:
    """Return the kinds of amounts in `stats`, such as `"allocated_bytes"`, each once."""
    kinds: list[str] = []
    for key in stats:  # such as "allocated_bytes.all.current"
        kind, _, _rest = key.partition(".")
        if ".all." in key and kind not in kinds:
            kinds.append(kind)
    return kinds


def _table_row(kind: str, pool: str, values: Sequence[Any]) -> str:
    """Return the line for one kind of amount, such as `"allocated_bytes"`, in one pool."""
    name = kind if pool == "all" else f"  {pool}"
    cells = []
    for value in values:
        if value is None:
            cells.append("-")
        elif kind.endswith("_bytes"):
            cells.append(_format_bytes(value))
        else:
            cells.append(str(value))
    return _table_line(name.replace("_", " "), cells)


def _table_line(name: str, cells: Sequence[str]) -> str:
    columns = [name.ljust(28)]
    for cell in cells:
        columns.append(cell.rjust(12))
    return " | ".join(columns)


def _format_bytes(amount: int) -> str:
    """Return an amount of bytes in the smallest unit up to GiB that needs at most four
    digits, such as `"1536 KiB"`.
    """
    five_digits = 10_000
    for unit in ("B", "KiB", "MiB"):
        if abs(amount) < five_digits:
            return f"{amount} {unit}"
        amount = round(amount / 1024)
    return f"{amount} GiB"
