"""Section of the interface: device memory. Amounts are `int` bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from accel_core.accelerators._streams import Streams
from accel_core.errors import UnsupportedError

__all__ = ["Memory"]


class Memory(Streams):
    """Device memory.

    A subclass gives `memory_allocated`, `max_memory_allocated`, `reset_peak_memory_stats` and
    `total_memory`, and the `*_reserved` pair where there is a caching allocator.
    """

    def memory_allocated(self, device_index: int | None = None) -> int:
        """Bytes that tensors hold on the device."""
        raise self._unsupported("memory_allocated")

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        """Peak of `memory_allocated` since the start, or since the last reset."""
        raise self._unsupported("max_memory_allocated")

    def memory_reserved(self, device_index: int | None = None) -> int:
        """Bytes that the allocator holds, used or not; without a caching allocator, those allocated."""
        return self.memory_allocated(device_index)

    def max_memory_reserved(self, device_index: int | None = None) -> int:
        """Peak of `memory_reserved` since the start, or since the last reset."""
        return self.max_memory_allocated(device_index)

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        """Start all peaks again from the present amounts."""
        raise self._unsupported("reset_peak_memory_stats")

    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        """`reset_peak_memory_stats` under its older name: vendors keep one reset for all peaks."""
        self.reset_peak_memory_stats(device_index)

    def memory_cached(self, device_index: int | None = None) -> int:
        """`memory_reserved` under its older name, without the deprecation warning."""
        return self.memory_reserved(device_index)

    def max_memory_cached(self, device_index: int | None = None) -> int:
        """`max_memory_reserved` under its older name, without the deprecation warning."""
        return self.max_memory_reserved(device_index)

    def reset_max_memory_cached(self, device_index: int | None = None) -> None:
        """`reset_peak_memory_stats` under its older name."""
        self.reset_peak_memory_stats(device_index)

    def memory_stats(self, device_index: int | None = None) -> Mapping[str, Any]:
        """Flat mapping with torch's keys, such as `allocated_bytes.all.current`.

        The vendor's own keys stay beside them. The default holds those of the current and peak
        amounts that the backend can tell.
        """
        asked: tuple[tuple[str, Callable[[int | None], int]], ...] = (
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

    def mem_get_info(self, device_index: int | None = None) -> tuple[int, int]:
        """`(free, total)` bytes of the device.

        The default cannot see other processes: what this process has not reserved counts as free.
        """
        total = self.total_memory(device_index)
        return max(0, total - self.memory_reserved(device_index)), total

    def available_memory(self, device_index: int | None = None) -> int:
        """Bytes that are free for a new process, as far as the vendor can tell."""
        return self.mem_get_info(device_index)[0]

    def empty_cache(self) -> None:
        """Give unused cached memory back to the device; nothing where there is no cache."""

    def set_per_process_memory_fraction(self, fraction: float, device_index: int | None = None) -> None:
        """Let this process allocate at most `fraction` (0 to 1) of the device's memory."""
        raise self._unsupported("set_per_process_memory_fraction")
