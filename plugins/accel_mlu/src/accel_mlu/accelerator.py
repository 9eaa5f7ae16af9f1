"""`MLUAccelerator`: the members that differ on torch.mlu from torch's other device
modules.
"""

from __future__ import annotations

from contextlib import suppress

from accel_core import TorchAccelerator, is_installed

__all__ = ["MLUAccelerator"]


class MLUAccelerator(TorchAccelerator):
    """Cambricon MLUs.

    Counting devices does not start the driver if `libcndev.so` loads, so a process may
    count, fork, and use the device in its child. The first call that needs the device
    starts the driver; a child forked later raises torch_mlu's `RuntimeError`.
    """

    # DeepSpeed (0.19.8) trains in float16 on every MLU.
    _fp16_on_every_device = True
    # DeepSpeed's (0.19.8) `device(i)` is a block that selects the device.
    _warns_of_device_blocks = True
    _vendor_ranges = "cnpx"

    def is_triton_supported(self) -> bool:
        """Return whether a device is available and Cambricon's Triton is installed."""
        return is_installed("triton") and self.is_available()

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of CNCL, as in `(1, 20, 1)`; `None` if torch_mlu was built
        without it.
        """
        with suppress(AttributeError, RuntimeError):
            return tuple(int(part) for part in self.device_module.cncl.version())
        return None
