"""Say in one sentence that a tensor on a simulated device cannot be sent to another process."""

from __future__ import annotations

from typing import Any

__all__ = ["refuse"]

#: What `torch.multiprocessing` calls to share a storage's memory with another process.
_WAYS = ("_share_cuda_", "_share_fd_cpu_", "_share_filename_cpu_")


def refuse(storage: Any, device_type: str) -> None:
    """Have `torch.UntypedStorage` refuse to share the memory of the simulated device.

    The device's memory is its process's own. Torch itself shares that of CUDA devices only.
    """
    for name in _WAYS:
        setattr(storage, name, _refusing(getattr(storage, name), device_type))


def _refusing(share: Any, device_type: str) -> Any:
    def refusing(self: Any, *arguments: Any, **options: Any) -> Any:
        if self.device.type == device_type:
            from accel_core import UnsupportedError

            raise UnsupportedError(
                f"a tensor on {self.device} cannot be sent to another process: torch shares memory of CUDA "
                "devices only, and simulated devices share none. Send tensor.cpu()"
            )
        return share(self, *arguments, **options)

    return refusing
