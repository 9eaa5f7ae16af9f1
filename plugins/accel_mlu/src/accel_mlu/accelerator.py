"""`MLUAccelerator`: the members that torch.mlu needs to override."""

from __future__ import annotations

from contextlib import suppress

from accel_core import TorchAccelerator, is_installed

__all__ = ["MLUAccelerator"]


class MLUAccelerator(TorchAccelerator):
    """Cambricon MLUs.

    Counting devices does not start the driver if `libcndev.so` loads. A process may
    then count devices, fork, and use the devices in its child. The first call that
    needs the device starts the driver. In a child that is forked after that, the device
    raises torch_mlu's `RuntimeError`.
    """

    # DeepSpeed (0.19.8) trains in float16 on every MLU.
    _has_fp16_on_every_device = True
    # In DeepSpeed (0.19.8), `device(i)` is a context manager that selects the device.
    _warns_of_device_blocks = True
    _range_module = "cnpx"

    def is_triton_supported(self) -> bool:
        """Return whether a device is available and Cambricon's Triton is installed."""
        return is_installed("triton") and self.is_available()

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of CNCL, such as `(1, 20, 1)`; `None` if torch_mlu was
        built without it.
        """
        with suppress(AttributeError, RuntimeError):
            return tuple(int(part) for part in self.device_module.cncl.version())
        return None
