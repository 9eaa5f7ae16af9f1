"""Provide the function of the operator `fused_lion`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from accel_train.ops.arguments import named_lists
from accel_train.ops.portable._lion import lion

__all__ = ["multi_tensor_lion"]

_LISTS = ("gradients", "parameters", "exp_avg")


def multi_tensor_lion(
    chunk_size: int,  # how a kernel would split the work
    noop_flag: Tensor,  # the compiled kernel ignores it too: infinities must be seen
    tensor_lists: Sequence[Sequence[Tensor]],
    lr: float,
    beta1: float,
    beta2: float,
    step: int,  # Lion has no bias to correct
    weight_decay: float,
) -> None:
    """Do one step of Lion, in place; `tensor_lists`: gradients, parameters, averages.

    Raises `OpInputError` for lists that do not match.
    """
    lists = named_lists("fused_lion", _LISTS, tensor_lists)
    lion(
        "fused_lion", lists, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay
    )
