"""Provide the functions of the operator `cpu_adam`, without ZenFlow's, for tensors of any device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from accel_core.errors import OpInputError
from accel_train.ops.arguments import (
    check_decay,
    check_undoable,
    missing_function_error,
    require_tensor,
)
from accel_train.ops.portable._adam import adam
from accel_train.ops.portable._optimizers import Optimizers
from accel_train.ops.portable._tensors import bias_corrections, update_in_groups

__all__ = ["adam_rollback", "adam_update", "create_adam", "destroy_adam"]

#: The setting of each optimizer is True if its weight decay is decoupled (AdamW). Each update gets the other
#: settings as arguments.
_optimizers: Optimizers[bool] = Optimizers("cpu_adam", "create_adam")


# Hidden from type checkers: with `__getattr__`, they would accept every misspelt name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        raise missing_function_error("cpu_adam", name)


def create_adam(
    optimizer_id: int,
    alpha: float,  # Each update gets these numbers as arguments.
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    adamw_mode: bool,
    should_log: bool,
) -> int:
    """Create the Adam optimizer with the id `optimizer_id`, and return 0.

    With `adamw_mode`, the optimizer is AdamW. The numbers from `alpha` to
    `weight_decay` are ignored here, because each update passes its own.
    """
    is_decay_decoupled = bool(adamw_mode)
    return _optimizers.create(optimizer_id, is_decay_decoupled, should_log)


def destroy_adam(optimizer_id: int) -> int:
    """Delete the Adam optimizer with the id `optimizer_id`, if it exists, and return 0."""
    return _optimizers.destroy(optimizer_id)


def adam_update(
    optimizer_id: int,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    bias_correction: bool,
    params: Tensor,
    grads: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
) -> int:
    """Perform one step of Adam or AdamW on one parameter in place, and return 0.

    `step` starts at 1. The optimizer states may have a wider data type than the parameter. Raises
    `OpInputError` if the optimizer was not created, if a number is out of range, or if tensors do not match.
    """
    adam(
        "cpu_adam",
        _named_tensors(params, grads, exp_avg, exp_avg_sq),
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        eps=epsilon,
        step=step,
        decoupled=_optimizers.get_settings(optimizer_id),
        bias_correction=bias_correction,
        weight_decay=weight_decay,
    )
    return 0


def adam_rollback(
    optimizer_id: int,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    bias_correction: bool,
    params: Tensor,
    grads: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
) -> int:
    """Undo an `adam_update` with the same arguments, except for rounding, and return 0.

    Raises the same errors as `adam_update`. Also raises `OpInputError` if the step cannot be undone: if
    tensors are not float32 or float64, if `beta1` or `beta2` is 0, or, in AdamW, if `lr * weight_decay` is 1.
    """
    decoupled = _optimizers.get_settings(optimizer_id)
    lists = _named_tensors(params, grads, exp_avg, exp_avg_sq)
    correction1, correction2 = bias_corrections(
        "cpu_adam", beta1, beta2, step, bias_correction
    )
    check_decay("cpu_adam", weight_decay)
    decoupled_decay = weight_decay if decoupled else 0.0
    check_undoable("cpu_adam", beta1, beta2, decoupled_decay, lr)
    decay_factor = 1 - lr * decoupled_decay
    for name, [tensor] in lists.items():
        require_tensor(f"cpu_adam: {name}", tensor)
        if tensor.dtype not in (torch.float32, torch.float64):
            raise OpInputError(
                f"cpu_adam: {name} has the type {tensor.dtype}; a step can be undone only in float32 or "
                "float64"
            )

    def undo_update(
        gradients: list[Tensor],
        parameters: list[Tensor],
        averages: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        [gradient] = gradients
        [parameter] = parameters
        [average] = averages
        [square] = squares
        denominator = square.sqrt().div_(math.sqrt(correction2)).add_(epsilon)
        parameter.addcdiv_(average, denominator, value=lr / correction1)
        parameter.div_(decay_factor)
        if weight_decay and not decoupled:
            gradient = gradient.add(parameter, alpha=weight_decay)
        average.sub_(gradient, alpha=1 - beta1).div_(beta1)
        square.addcmul_(gradient, gradient, value=beta2 - 1).div_(beta2)
        # Rounding may make the square negative, and the next square root would then be NaN.
        square.clamp_(min=0)

    update_in_groups("cpu_adam", lists, undo_update)
    return 0


def _named_tensors(
    params: Tensor, grads: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor
) -> dict[str, list[Tensor]]:
    """Return the tensors of one parameter by name, each in a list, in the order of `update_in_groups`."""
    return {
        "gradients": [grads],
        "parameters": [params],
        "exp_avg": [exp_avg],
        "exp_avg_sq": [exp_avg_sq],
    }
