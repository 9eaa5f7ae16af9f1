"""Register host memory with the simulated driver: `cudaHostRegister` and `cudaHostUnregister`."""

from __future__ import annotations

from accel_simulated import device

__all__ = ["HostMemory"]

#: CUDA's error codes (driver_types.h).
_SUCCESS = 0
_ALREADY_REGISTERED = 712
_NOT_REGISTERED = 713


class HostMemory:
    """The ranges of host memory that this process has registered with the simulated driver."""

    def __init__(self) -> None:
        self._addresses: set[int] = set()

    def register(self, address: int, size: int, flags: int) -> int:
        """Register `size` bytes of host memory at `address`, and return a CUDA error code.

        The code is 0 on success, or 712 if the memory is already registered.
        """
        if address in self._addresses:
            return _ALREADY_REGISTERED
        self._addresses.add(address)
        device.library.sim_lock_pages(address, size)
        return _SUCCESS

    def unregister(self, address: int) -> int:
        """Unregister the host memory at `address`, and return a CUDA error code.

        The code is 0 on success, or 713 if the memory is not registered.
        """
        if address not in self._addresses:
            return _NOT_REGISTERED
        self._addresses.remove(address)
        device.library.sim_unlock_pages(address)
        return _SUCCESS
