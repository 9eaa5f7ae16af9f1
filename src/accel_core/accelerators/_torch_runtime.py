"""Page-locking of memory that is there already, by the runtime that a vendor's module of torch hands out."""

from __future__ import annotations

from typing import Any

from accel_core.accelerators._devices import Devices

__all__ = ["TorchRuntime"]


class TorchRuntime(Devices):
    """Host memory is registered by `torch.<type>.<type>rt()`: `cudart().cudaHostRegister`, `supart()`.

    So torch names it for CUDA and ROCm, and vendors after it. Without such a function nothing is registered.
    """

    #: The vendor's module: `torch.npu`.
    device_module: Any

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Page-lock host memory; False without a device, or where the vendor's module has no way to.

        Raises what the vendor's `check_error` raises where the driver refuses: torch's `CudaError`, a
        `RuntimeError`.
        """
        register = self._of_runtime("HostRegister")
        if register is None:
            return False
        self._checked(register(address, num_bytes, 0))
        return True

    def unregister_host_memory(self, address: int) -> None:
        """Undo `register_host_memory`. Raises as that does, for memory that is not registered too."""
        unregister = self._of_runtime("HostUnregister")
        if unregister is not None:
            self._checked(unregister(address))

    def _of_runtime(self, name: str) -> Any:
        """A function of the vendor's runtime; `None` without it or without a device to use it on."""
        runtime = getattr(self.device_module, f"{self._device_type}rt", None)
        if runtime is None or not hasattr(self.device_module, "check_error") or not self.is_available():
            return None
        return getattr(runtime(), f"{self._device_type}{name}", None)

    def _checked(self, status: Any) -> None:
        self.device_module.check_error(int(status))
