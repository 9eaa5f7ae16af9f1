"""`MUSAAccelerator`: the members that differ on torch.musa from torch's other device
modules.
"""

from __future__ import annotations

from contextlib import suppress

from accel_core import TorchAccelerator, is_installed

__all__ = ["MUSAAccelerator"]


class MUSAAccelerator(TorchAccelerator):
    """Moore Threads GPUs.

    torch_musa counts devices once per process, through its runtime: later changes of
    `MUSA_VISIBLE_DEVICES` have no effect. A child forked after the device has started
    raises torch_musa's `RuntimeError`.
    """

    def is_triton_supported(self) -> bool:
        """Return whether a device is available and Moore Threads' Triton is installed."""
        return is_installed("triton") and self.is_available()

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of MCCL, as in `(2, 11, 4)`; `None` if torch_musa was built
        without it.
        """
        with suppress(AttributeError, RuntimeError):
            return tuple(
                int(part) for part in self.device_module.mccl.version()[:3]
            )  # a suffix may follow
        return None
