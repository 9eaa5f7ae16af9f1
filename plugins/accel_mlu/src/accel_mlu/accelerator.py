"""`MLUAccelerator`: the members to override for torch.mlu."""

from __future__ import annotations

from contextlib import suppress

from accel_core import TorchAccelerator, is_installed

__all__ = ["MLUAccelerator"]


class MLUAccelerator(TorchAccelerator):
    """The accelerator for Cambricon MLUs.

    Counting devices does not start the driver if `libcndev.so` can be loaded. A process
    may then count devices, fork, and use the devices in its child. The first use of a
    device starts the driver. If a process forks after that, torch_mlu raises a
    `RuntimeError` when the child uses a device.
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
        """Return the version of CNCL, such as `(1, 20, 1)`.

        The result is `None` if torch_mlu was built without CNCL.
        """
        with suppress(AttributeError, RuntimeError):
            return tuple(int(part) for part in self.device_module.cncl.version())
        return None
