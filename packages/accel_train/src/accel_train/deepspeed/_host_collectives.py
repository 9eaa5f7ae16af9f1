"""Correct DeepSpeed's collectives on Metal, whose tensors both DeepSpeed and `staged` copy to the host."""

from __future__ import annotations

from typing import Any

from accel_train.staged import STAGED

__all__ = ["TORCH_COMM_MODULE", "patch_cpu_staging"]

#: DeepSpeed's module that wraps torch.distributed, and the module's function that decides whether a tensor
#: is copied to the host.
TORCH_COMM_MODULE = "deepspeed.comm.torch"
_NEEDS_CPU_STAGING = "_needs_cpu_staging"


def patch_cpu_staging(comm_module: Any) -> None:
    """Keep DeepSpeed from copying tensors to the host for the process group `staged`, which copies them too.

    `comm_module` is DeepSpeed's module `TORCH_COMM_MODULE`. DeepSpeed 0.19.8 copies all arguments of a
    collective back to the device, and the output before the input. In ZeRO 3's reduce_scatter, the output is
    a part of the input, so the second copy overwrites the result. Without this patch, each rank would train
    on its own gradients alone.
    """
    original = getattr(comm_module, _NEEDS_CPU_STAGING, None)
    is_patched = getattr(original, "is_patched_by_accel", False)
    if original is None or is_patched:
        return

    def needs_cpu_staging(tensor: Any) -> bool:
        if not original(tensor):
            return False
        backend = comm_module.torch.distributed.get_backend()
        # The backend "staged" copies the tensor to the host itself.
        return bool(backend != STAGED)

    needs_cpu_staging.is_patched_by_accel = True  # type: ignore[attr-defined]
    setattr(comm_module, _NEEDS_CPU_STAGING, needs_cpu_staging)
