"""Registering host memory with the driver: what is registered, and the driver's errors by CUDA's numbers."""

from __future__ import annotations

from accel_simulated import device

__all__ = ["HostMemory"]


class HostMemory:
    """The registered ranges of a process, by their addresses."""

    def __init__(self) -> None:
        self._registered: set[int] = set()

    def register(self, address: int, size: int, flags: int) -> int:
        """Register a range; return 0, or 712 if the memory is registered already."""
        if address in self._registered:
            return 712
        self._registered.add(address)
        device.library.sim_lock_pages(address, size)
        return 0

    def unregister(self, address: int) -> int:
        """Remove a range; return 0, or 713 if the memory is not registered."""
        if address not in self._registered:
            return 713
        self._registered.remove(address)
        device.library.sim_unlock_pages(address)
        return 0
