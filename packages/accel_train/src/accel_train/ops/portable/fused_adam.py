"""Provide the function of the operator `fused_adam`."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from accel_train.ops.arguments import check_mode, named_lists
from accel_train.ops.portable._adam import adam

__all__ = ["multi_tensor_adam"]

_LISTS = ("gradients", "parameters", "exp_avg", "exp_avg_sq")


def multi_tensor_adam(
    chunk_size: int,  # Unused: it is the size of a compiled kernel's pieces.
    noop_flag: Tensor,  # Unused, also by the compiled kernel, so that infinities are noticed.
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
    """Perform one step of Adam (`mode` 0) or AdamW (`mode` 1) in place.

    `tensor_lists` contains, in this order, the gradients, the parameters, the moving averages of the
    gradients, and the moving averages of the squared gradients. `step` starts at 1. `bias_correction` is 0 or
    1. Raises `OpInputError` if lists or tensors do not match, if a number is out of range, or if `mode` has
    any other value.
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
