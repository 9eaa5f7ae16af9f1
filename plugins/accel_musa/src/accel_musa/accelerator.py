"""`MUSAAccelerator`: what differs on torch.musa from any other device module of
torch.
"""

from __future__ import annotations

from contextlib import suppress

from accel_core import TorchAccelerator, is_installed

__all__ = ["MUSAAccelerator"]


class MUSAAccelerator(TorchAccelerator):
    """Moore Threads GPUs.

    torch_musa counts devices once, through its runtime: a later change of
    `MUSA_VISIBLE_DEVICES` has no effect in the process. A child forked after the device
    was started gets torch_musa's `RuntimeError`.
    """

    def is_triton_supported(self) -> bool:
        """Whether there is a device and Triton, in Moore Threads' build, is
        installed.
        """
        return is_installed("triton") and self.is_available()

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of MCCL: `(2, 11, 4)`; `None` in a torch_musa built
        without it.
        """
        with suppress(AttributeError, RuntimeError):
            return tuple(
                int(part) for part in self.device_module.mccl.version()[:3]
            )  # a suffix may follow
        return None
