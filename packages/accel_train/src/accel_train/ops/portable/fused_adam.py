"""Provide the function of the operator `fused_adam`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from accel_train.ops.arguments import check_mode, named_lists
from accel_train.ops.portable._adam import adam

__all__ = ["multi_tensor_adam"]

_LISTS = ("gradients", "parameters", "exp_avg", "exp_avg_sq")


def multi_tensor_adam(
    chunk_size: int,  # how a kernel would split the work
    noop_flag: Tensor,  # the compiled kernel ignores it too: infinities must be seen
    tensor_lists: Sequence[Sequence[Tensor]],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    mode: int,
    bias_correction: int,
    weight_decay: float,
) -> None:
    """Do one step of Adam (`mode` 0) or AdamW (`mode` 1), in place.

    `tensor_lists`: gradients, parameters, averages, averages of squares. `step` starts at 1;
    `bias_correction` is 0 or 1. Raises `OpInputError` for lists that do not match, and for another `mode`.
    """
    lists = named_lists("fused_adam", _LISTS, tensor_lists)
    check_mode("fused_adam", mode)
    adam(
        "fused_adam",
        lists,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        eps=epsilon,
        step=step,
        decoupled=mode == 1,
        bias_correction=bool(bias_correction),
        weight_decay=weight_decay,
    )
