"""`MUSAAccelerator`: the members to override for torch.musa."""

from __future__ import annotations

from contextlib import suppress

from accel_core import TorchAccelerator, is_installed

__all__ = ["MUSAAccelerator"]


class MUSAAccelerator(TorchAccelerator):
    """The accelerator for Moore Threads GPUs.

    torch_musa's runtime counts the devices once per process. Later changes of
    `MUSA_VISIBLE_DEVICES` therefore have no effect. If a process forks after it has
    used a device, torch_musa raises a `RuntimeError` when the child uses a device.
    """

    def is_triton_supported(self) -> bool:
        """Return whether a device is available and Moore Threads' Triton is installed."""
        return is_installed("triton") and self.is_available()

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of MCCL, such as `(2, 11, 4)`.

        The result is `None` if torch_musa was built without MCCL.
        """
        with suppress(AttributeError, RuntimeError):
            # A suffix may follow the three numbers.
            version = self.device_module.mccl.version()[:3]
            return tuple(int(part) for part in version)
        return None
