"""Provide the function of the operator `fused_lion`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from accel_train.ops.arguments import named_lists
from accel_train.ops.portable._lion import lion

__all__ = ["multi_tensor_lion"]

_LISTS = ("gradients", "parameters", "exp_avg")


def multi_tensor_lion(
    chunk_size: int,  # Unused: it is the size of a compiled kernel's pieces.
    noop_flag: Tensor,  # Unused, also by the compiled kernel, so that infinities are noticed.
    tensor_lists: Sequence[Sequence[Tensor]],
    lr: float,
    beta1: float,
    beta2: float,
    step: int,  # Unused, because Lion has no bias to correct.
    weight_decay: float,
) -> None:
    """Perform one step of Lion in place.

    `tensor_lists` contains, in this order, the gradients, the parameters, and the moving averages of the
    gradients. Raises `OpInputError` if lists or tensors do not match, or if a number is out of range.
    """
    lists = named_lists("fused_lion", _LISTS, tensor_lists)
    lion(
        "fused_lion", lists, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay
    )
