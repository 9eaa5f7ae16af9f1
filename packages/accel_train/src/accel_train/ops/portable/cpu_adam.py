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
    require_tensor,
    zenflow_is_missing,
)
from accel_train.ops.portable._adam import adam
from accel_train.ops.portable._optimizers import Optimizers
from accel_train.ops.portable._tensors import bias_corrections, update_in_groups

__all__ = ["adam_rollback", "adam_update", "create_adam", "destroy_adam"]

#: For each optimizer whether weight decay is decoupled; each update gets all other settings as arguments.
_decoupled_decay: Optimizers[bool] = Optimizers("cpu_adam", "create_adam")


if (
    not TYPE_CHECKING
):  # a type checker that saw it would take every misspelt name for one of ours

    def __getattr__(name: str) -> Any:
        raise zenflow_is_missing("cpu_adam", name)


def create_adam(
    optimizer_id: int,
    alpha: float,  # these are given with each update
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    adamw_mode: bool,
    should_log: bool,
) -> int:
    """Create optimizer `optimizer_id`: AdamW if `adamw_mode`, else Adam. Returns 0."""
    return _decoupled_decay.create(optimizer_id, bool(adamw_mode), should_log)


def destroy_adam(optimizer_id: int) -> int:
    """Delete optimizer `optimizer_id`, if it exists. Returns 0."""
    return _decoupled_decay.destroy(optimizer_id)


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
    """Do one step on one parameter, in place; `step` starts at 1. States may be wider than the parameter.

    Raises `OpInputError` for an optimizer that was not created, and for tensors that do not match.
    """
    adam(
        "cpu_adam",
        _named_tensors(params, grads, exp_avg, exp_avg_sq),
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        eps=epsilon,
        step=step,
        decoupled=_decoupled_decay.get(optimizer_id),
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
    """Undo `adam_update` with the same arguments, up to rounding; float32 and float64 only.

    Raises `OpInputError` as `adam_update` does, and for a rate of 0 or `lr * weight_decay = 1`, after which
    the old values cannot be recovered.
    """
    decoupled = _decoupled_decay.get(optimizer_id)
    lists = _named_tensors(params, grads, exp_avg, exp_avg_sq)
    correction1, correction2 = bias_corrections(
        "cpu_adam", beta1, beta2, step, bias_correction
    )
    check_decay("cpu_adam", weight_decay)
    check_undoable("cpu_adam", beta1, beta2, weight_decay if decoupled else 0.0, lr)
    remaining_weight = 1 - lr * weight_decay if decoupled else 1.0
    for name, (tensor,) in lists.items():
        require_tensor(f"cpu_adam: {name}", tensor)
        if tensor.dtype not in (torch.float32, torch.float64):
            raise OpInputError(
                f"cpu_adam: {name} are {tensor.dtype}; a step can be undone in float32 only"
            )

    def update(
        g: list[Tensor], p: list[Tensor], m: list[Tensor], v: list[Tensor]
    ) -> None:
        (gradient,), (weight,), (average,), (square,) = g, p, m, v
        root = square.sqrt().div_(math.sqrt(correction2)).add_(epsilon)
        weight.addcdiv_(average, root, value=lr / correction1).div_(remaining_weight)
        if weight_decay and not decoupled:
            gradient = gradient.add(weight, alpha=weight_decay)
        average.sub_(gradient, alpha=1 - beta1).div_(beta1)
        square.addcmul_(gradient, gradient, value=beta2 - 1).div_(beta2)
        # By rounding it may be below 0, and the next square root would be NaN.
        square.clamp_(min=0)

    update_in_groups("cpu_adam", lists, update)
    return 0


def _named_tensors(
    params: Tensor, grads: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor
) -> dict[str, list[Tensor]]:
    """Return the tensors of one parameter as lists by name, for `adam` and `update_in_groups`."""
    return {
        "gradients": [grads],
        "parameters": [params],
        "exp_avg": [exp_avg],
        "exp_avg_sq": [exp_avg_sq],
    }
