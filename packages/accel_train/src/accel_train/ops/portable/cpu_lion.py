"""Provide the functions of the operator `cpu_lion`, for tensors of any device."""

from __future__ import annotations

from torch import Tensor

from accel_train.ops.portable._lion import lion
from accel_train.ops.portable._optimizers import Optimizers

__all__ = ["create_lion", "destroy_lion", "lion_update"]

_optimizers: Optimizers[None] = Optimizers("cpu_lion", "create_lion")


def create_lion(
    optimizer_id: int,
    alpha: float,  # Each update gets these numbers as arguments.
    beta1: float,
    beta2: float,
    weight_decay: float,
    should_log: bool,
) -> int:
    """Create the Lion optimizer with the id `optimizer_id`, and return 0.

    Only the argument `should_log` has an effect.
    """
    return _optimizers.create(optimizer_id, None, should_log)


def destroy_lion(optimizer_id: int) -> int:
    """Delete the Lion optimizer with the id `optimizer_id`, if it exists, and return 0."""
    return _optimizers.destroy(optimizer_id)


def lion_update(
    optimizer_id: int,
    step: int,  # Unused, because Lion has no bias to correct.
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    params: Tensor,
    grads: Tensor,
    exp_avg: Tensor,
) -> int:
    """Perform one step of Lion on one parameter in place, and return 0.

    Raises `OpInputError` if the optimizer was not created, if a number is out of range, or if tensors do not
    match.
    """
    _optimizers.get_settings(optimizer_id)
    lists = {"gradients": [grads], "parameters": [params], "exp_avg": [exp_avg]}
    lion("cpu_lion", lists, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay)
    return 0
