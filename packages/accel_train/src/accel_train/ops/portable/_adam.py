"""Perform a step of Adam or AdamW, for the operators `fused_adam` and `cpu_adam`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam as torch_adam
from torch.optim.adamw import adamw as torch_adamw

from accel_train.ops.arguments import check_decay
from accel_train.ops.portable._tensors import bias_corrections, update_in_groups

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
    """Perform one step of Adam or AdamW in place.

    `lists` contains, in this order, the gradients, the parameters, the moving averages of the gradients, and
    the moving averages of the squared gradients. `op` is the operator's name for error messages. With
    `decoupled`, weight decay is applied directly to the parameters (AdamW) instead of through the gradients.
    On the CPU, torch's fused kernel performs the step if the bias is corrected and the four tensors of a
    parameter have the same data type. Otherwise, the step is computed in float32 or float64, with the same
    rounding as `torch.optim` with `foreach=True`.

    Raises `OpInputError` if a number is out of range, or if tensors do not match.
    """
    check_decay(op, weight_decay)
    correction1, correction2 = bias_corrections(op, beta1, beta2, step, bias_correction)

    def update(
        gradients: list[Tensor],
        parameters: list[Tensor],
        averages: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        if weight_decay and decoupled:  # AdamW
            torch._foreach_mul_(parameters, 1 - lr * weight_decay)
        elif weight_decay:
            decayed = torch._foreach_add(gradients, parameters, alpha=weight_decay)
            gradients = list(decayed)
        torch._foreach_lerp_(averages, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        denominators = torch._foreach_sqrt(squares)
        torch._foreach_div_(denominators, math.sqrt(correction2))
        torch._foreach_add_(denominators, eps)
        step_size = -lr / correction1
        torch._foreach_addcdiv_(parameters, averages, denominators, step_size)

    def fused_update(
        gradients: list[Tensor],
        parameters: list[Tensor],
        averages: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        torch_step = torch_adamw if decoupled else torch_adam
        # torch counts the steps itself, in a separate tensor for each parameter.
        previous_step = torch.tensor(float(step - 1), device="cpu")
        torch_step(
            parameters,
            gradients,
            averages,
            squares,
            [],  # The maximum squares of AMSGrad, which is off.
            [previous_step.clone() for _ in parameters],
            fused=True,
            amsgrad=False,
            maximize=False,
            beta1=beta1,
            beta2=beta2,
            lr=float(lr),
            weight_decay=weight_decay,
            eps=eps,
        )

    # torch's fused kernel always corrects the bias.
    if bias_correction:
        update_in_groups(op, lists, update, fused_update=fused_update)
    else:
        update_in_groups(op, lists, update)
