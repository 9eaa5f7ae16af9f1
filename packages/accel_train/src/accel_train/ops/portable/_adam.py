"""Adam and AdamW, for `fused_adam` and `cpu_adam`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from accel_train.ops.arguments import check_decay
from accel_train.ops.portable._tensors import corrections, update_in_groups

__all__ = ["adam"]


def adam(
    op: str,
    lists: Mapping[str, Sequence[Tensor]],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
    decoupled: bool,
    bias_correction: bool,
    weight_decay: float,
) -> None:
    """Do one step on gradients, parameters, averages and averages of squares, rounded as in `torch.optim`.

    `decoupled`: decay the weights directly (AdamW) instead of through the gradient.
    """
    check_decay(op, weight_decay)
    correction1, correction2 = corrections(op, beta1, beta2, step, bias_correction)

    def update(
        g: list[Tensor], p: list[Tensor], m: list[Tensor], v: list[Tensor]
    ) -> None:
        if weight_decay and decoupled:
            torch._foreach_mul_(p, 1 - lr * weight_decay)
        elif weight_decay:
            g = list(torch._foreach_add(g, p, alpha=weight_decay))
        torch._foreach_lerp_(m, g, 1 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, g, g, 1 - beta2)
        denominator = torch._foreach_sqrt(v)
        torch._foreach_div_(denominator, math.sqrt(correction2))
        torch._foreach_add_(denominator, eps)
        torch._foreach_addcdiv_(p, m, denominator, -lr / correction1)

    update_in_groups(op, lists, update)
