"""`SUPAAccelerator`: the members to override for torch.supa."""

from __future__ import annotations

from contextlib import suppress

from accel_core import TorchAccelerator, is_installed

__all__ = ["SUPAAccelerator"]


class SUPAAccelerator(TorchAccelerator):
    """The accelerator for Biren GPUs.

    torch_supa's runtime counts the devices once per process. Later changes of
    `SUPA_VISIBLE_DEVICES` therefore have no effect. torch_supa does not detect forks,
    so a child must not use a device that its parent has started.
    """

    # DeepSpeed (0.19.8) trains in float16 on every Biren GPU.
    _has_fp16_on_every_device = True
    _range_module = "brtx"

    def is_fp64_supported(self) -> bool:
        """Return False: torch_supa raises "SUPA device does not support double
        (float64)".
        """
        return False

    def is_triton_supported(self) -> bool:
        """Return whether a device is available and Biren's Triton is installed."""
        return is_installed("triton") and self.is_available()

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of BCCL, such as `(1, 3, 0)`.

        The result is `None` if torch_supa was built without BCCL.
        """
        get_version = getattr(self.device_module.bccl, "version", None)
        if get_version is None:
            return None
        with suppress(AttributeError, RuntimeError):
            # A suffix may follow the three numbers.
            return tuple(int(part) for part in get_version()[:3])
        return None
