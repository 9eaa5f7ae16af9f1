"""Sections of the interface: device memory, page-locked host memory. Amounts are `int` bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from accel_core.accelerators._devices import Base, Devices
from accel_core.errors import UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch.types import Device

__all__ = ["Memory", "Pinning"]


class Memory(Devices):
    """Device memory.

    A subclass gives `memory_allocated`, `max_memory_allocated`, `reset_peak_memory_stats` and
    `total_memory`, and the `*_reserved` pair where there is a caching allocator.
    """

    def memory_allocated(self, device_index: Device = None) -> int:
        """Bytes that tensors hold on the device."""
        raise self._unsupported("memory_allocated")

    def max_memory_allocated(self, device_index: Device = None) -> int:
        """Peak of `memory_allocated` since the start, or since the last reset."""
        raise self._unsupported("max_memory_allocated")

    def memory_reserved(self, device_index: Device = None) -> int:
        """Bytes that the allocator holds, used or not; without a caching allocator, those allocated."""
        return self.memory_allocated(device_index)

    def max_memory_reserved(self, device_index: Device = None) -> int:
        """Peak of `memory_reserved` since the start, or since the last reset."""
        return self.max_memory_allocated(device_index)

    def reset_peak_memory_stats(self, device_index: Device = None) -> None:
        """Start all peaks again from the present amounts."""
        raise self._unsupported("reset_peak_memory_stats")

    def reset_max_memory_allocated(self, device_index: Device = None) -> None:
        """`reset_peak_memory_stats` under its older name: vendors keep one reset for all peaks."""
        self.reset_peak_memory_stats(device_index)

    def memory_cached(self, device_index: Device = None) -> int:
        """`memory_reserved` under its older name, without the deprecation warning."""
        return self.memory_reserved(device_index)

    def max_memory_cached(self, device_index: Device = None) -> int:
        """`max_memory_reserved` under its older name, without the deprecation warning."""
        return self.max_memory_reserved(device_index)

    def reset_max_memory_cached(self, device_index: Device = None) -> None:
        """`reset_peak_memory_stats` under its older name."""
        self.reset_peak_memory_stats(device_index)

    def reset_accumulated_memory_stats(self, device_index: Device = None) -> None:
        """Start the counts of all that was ever allocated and freed again; nothing where none are kept."""
        self._index_or_none(device_index)

    def memory_summary(self, device_index: Device = None, abbreviated: bool = False) -> str:
        """`memory_stats` as a table for people, as `torch.cuda.memory_summary` has it, on every device.

        A number that the device does not tell is a dash. `abbreviated` leaves out the allocator's large and
        small pool.
        """
        from accel_core.accelerators._memory_summary import summary

        index = self._index(device_index)
        stats = self.memory_stats(index)
        if "allocated_bytes.all.current" not in stats:  # a vendor with keys of its own alone
            stats = {**Memory.memory_stats(self, index), **stats}
        try:
            free = self.mem_get_info(index)
        except UnsupportedError:
            free = None
        return summary(self.device_name(index), stats, free, abbreviated)

    def memory_stats(self, device_index: Device = None) -> Mapping[str, Any]:
        """Flat mapping with torch's keys, such as `allocated_bytes.all.current`.

        The vendor's own keys stay beside them. The default holds those of the current and peak
        amounts that the backend can tell.
        """
        asked: tuple[tuple[str, Callable[[Device], int]], ...] = (
            ("allocated_bytes.all.current", self.memory_allocated),
            ("allocated_bytes.all.peak", self.max_memory_allocated),
            ("reserved_bytes.all.current", self.memory_reserved),
            ("reserved_bytes.all.peak", self.max_memory_reserved),
        )
        stats = {}
        for key, ask in asked:
            try:
                stats[key] = ask(device_index)
            except UnsupportedError:
                continue  # a zero would be a lie, a missing key is not
        return stats

    def mem_get_info(self, device_index: Device = None) -> tuple[int, int]:
        """`(free, total)` bytes of the device.

        The default cannot see other processes: what this process has not reserved counts as free.
        """
        total = self.total_memory(device_index)
        return max(0, total - self.memory_reserved(device_index)), total

    def available_memory(self, device_index: Device = None) -> int:
        """Bytes that are free for a new process, as far as the vendor can tell."""
        return self.mem_get_info(device_index)[0]

    def empty_cache(self) -> None:
        """Give unused cached memory back to the device; nothing where there is no cache."""

    def empty_host_cache(self) -> None:
        """Give unused page-locked memory, which torch keeps for later, back to the host.

        Nothing where none is kept, and before torch 2.12, which brings this.
        """

    def set_per_process_memory_fraction(self, fraction: float, device_index: Device = None) -> None:
        """Let this process allocate at most `fraction` (0 to 1) of the device's memory."""
        raise self._unsupported("set_per_process_memory_fraction")


class Pinning(Base):
    """Page-locked host memory, from which a copy to the device can run beside other work.

    Everything follows from `_torch_pin_memory`, `_torch_empty_pinned` and `_torch_is_pinned`, which
    have the names and parameters of the interface's hooks. None passes a device: torch deprecated that.
    """

    #: Gives the manager of memory that is locked otherwise than by torch, or `None`: set by an integration.
    _pins: Callable[[], Any] | None = None

    def _pinned_otherwise(self) -> Any:
        """Return the manager that an integration gives, where it is in use; else `None`."""
        return self._pins() if self._pins is not None else None

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """A page-locked copy of a host tensor."""
        return tensor.pin_memory()

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """An uninitialised page-locked tensor of that shape and of `tensor`'s data type."""
        return tensor.new_empty(shape, pin_memory=True)

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is page-locked."""
        return bool(tensor.is_pinned())

    def pin_memory(
        self, tensor: torch.Tensor, make_copy: bool = True, match_shape: bool = True
    ) -> torch.Tensor:
        """Page-locked host memory for `tensor`.

        With `make_copy` it holds the tensor's values. Without, the tensor is only a template: the
        memory is uninitialised, and `match_shape=False` makes it one-dimensional.
        """
        pins = self._pinned_otherwise()
        if pins is not None:
            locked: torch.Tensor = pins.pin(tensor, make_copy=make_copy, match_shape=match_shape)
            return locked
        if make_copy:
            return self._torch_pin_memory(tensor)
        return self._torch_empty_pinned(tensor, tuple(tensor.shape) if match_shape else (tensor.numel(),))

    def pin_empty(self, *size: Any, dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
        """An uninitialised page-locked host tensor.

        The size comes as in `torch.empty`: numbers, or one sequence. Raises `ValueError` when
        `device` is not the CPU.
        """
        self._require_host(device)
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        template = self._torch.empty(0, dtype=dtype, device="cpu")
        pins = self._pinned_otherwise()
        if pins is not None:
            locked: torch.Tensor = pins.pin_empty(template, shape)
            return locked
        return self._torch_empty_pinned(template, shape)

    def pin_empty_like(
        self, tensor: torch.Tensor, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """An uninitialised page-locked host tensor of `tensor`'s shape, and its data type unless given.

        Raises `ValueError` when `device` is not the CPU.
        """
        return self.pin_empty(
            tuple(tensor.shape), dtype=tensor.dtype if dtype is None else dtype, device=device
        )

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage is page-locked."""
        pins = self._pinned_otherwise()
        return (pins is not None and bool(pins.is_pinned(tensor))) or self._torch_is_pinned(tensor)

    def unpin_memory(self, tensor: torch.Tensor) -> None:
        """Give page-locked memory back; nothing for torch's, which goes with its last tensor."""
        pins = self._pinned_otherwise()
        if pins is not None:
            pins.unpin(tensor)

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Page-lock `num_bytes` of host memory at `address`; False where the runtime cannot."""
        return False

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`."""

    def pin_memory_alignment(self) -> int:
        """Bytes to which `register_host_memory` needs its address aligned; 1 when it does not matter."""
        return 1

    def _require_host(self, device: Any) -> None:
        try:
            on_host = self._torch.device(device).type == "cpu"
        except RuntimeError:
            on_host = False
        if not on_host:
            raise ValueError(f"page-locked memory is host memory: device must be 'cpu', not {device!r}")
