"""Raise a clear error if a tensor on a simulated device is sent to another process."""

from __future__ import annotations

from typing import Any

__all__ = ["forbid_sharing"]

#: The methods that `torch.multiprocessing` calls to share a storage's memory with another process.
_SHARING_METHODS = ("_share_cuda_", "_share_fd_cpu_", "_share_filename_cpu_")


def forbid_sharing(storage: Any, device_type: str) -> None:
    """Make a storage class raise `UnsupportedError` if a tensor of this device type is shared.

    `storage` is the class `torch.UntypedStorage`. Sharing means sending the tensor to another process. It is
    impossible because only the process that allocated a simulated device's memory can access it, and torch
    can share only the memory of CUDA devices.
    """
    for name in _SHARING_METHODS:
        original_method = getattr(storage, name)
        setattr(storage, name, _wrap_to_forbid_sharing(original_method, device_type))


def _wrap_to_forbid_sharing(share: Any, device_type: str) -> Any:
    """Return a version of the method `share` that raises `UnsupportedError` for the device type."""

    def checked_share(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.device.type == device_type:
            from accel_core import UnsupportedError

            raise UnsupportedError(
                f"a tensor on {self.device} cannot be sent to another process: torch shares only the memory "
                "of CUDA devices, and simulated devices cannot share memory. Send tensor.cpu()."
            )
        return share(self, *arguments, **options)

    return checked_share
