"""DeepSpeed's collectives on Metal: it copies their tensors to the host itself, which `staged` does too."""

from __future__ import annotations

from typing import Any

from accel_train.staged import STAGED

__all__ = ["HOME", "serve"]

#: Where DeepSpeed's wrappers of torch.distributed are, and the function that says which tensors they copy.
HOME = "deepspeed.comm.torch"
_COPIES = "_needs_cpu_staging"


def serve(module: Any) -> None:
    """Have DeepSpeed's `module` copy no tensor to the host where the process group is `staged`.

    DeepSpeed 0.19.8 copies all arguments back, the output before the input. In ZeRO 3's reduce_scatter the
    output is a part of the input and so is overwritten: several ranks train on their own gradients alone.
    """
    theirs = getattr(module, _COPIES, None)
    if theirs is None or getattr(theirs, "leaves_staged", False):
        return

    def copies(tensor: Any) -> bool:
        return bool(theirs(tensor)) and module.torch.distributed.get_backend() != STAGED

    copies.leaves_staged = True  # type: ignore[attr-defined]
    setattr(module, _COPIES, copies)
