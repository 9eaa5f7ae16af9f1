"""`GenericAccelerator`: a device that torch reports and no plugin knows."""

from __future__ import annotations

from accel_core.accelerators.torch_device import TorchAccelerator
from accel_core.errors import BackendUnavailableError

__all__ = ["GenericAccelerator"]


class GenericAccelerator(TorchAccelerator):
    """`TorchAccelerator` over whatever device `torch.accelerator` names when this is constructed.

    The name stays "generic"; `device_name()` is torch's. Raises `BackendUnavailableError` when torch
    reports no accelerator.
    """

    def _torch_device_type(self) -> str:
        try:
            device = self._torch.accelerator.current_accelerator()
        except RuntimeError as error:  # torch finds two that exclude each other
            raise BackendUnavailableError(
                f"{self.name}: torch cannot name its accelerator: {error}"
            ) from error
        if device is None:
            raise BackendUnavailableError(f"{self.name}: torch reports no accelerator")
        return str(device.type)
