"""Provide the functions of the operator `cpu_adagrad`, for tensors of any device."""

from __future__ import annotations

from torch import Tensor

from accel_train.ops.arguments import check_decay, require_whole_number
from accel_train.ops.portable._optimizers import Optimizers
from accel_train.ops.portable._tensors import update_in_groups

__all__ = ["adagrad_update", "create_adagrad", "destroy_adagrad"]

_optimizers: Optimizers[None] = Optimizers("cpu_adagrad", "create_adagrad")


def create_adagrad(
    optimizer_id: int,
    alpha: float = 1e-2,  # Each update gets these numbers as arguments.
    eps: float = 1e-8,
    weight_decay: float = 0,
    should_log: bool = False,
) -> int:
    """Create the Adagrad optimizer with the id `optimizer_id`, and return 0.

    Only the argument `should_log` has an effect.
    """
    return _optimizers.create(optimizer_id, None, should_log)


def destroy_adagrad(optimizer_id: int) -> int:
    """Delete the Adagrad optimizer with the id `optimizer_id`, if it exists, and return 0."""
    return _optimizers.destroy(optimizer_id)


def adagrad_update(
    optimizer_id: int,
    step: int,
    lr: float,
    epsilon: float,
    weight_decay: float,
    params: Tensor,
    grads: Tensor,
    exp_avg_sq: Tensor,
) -> int:
    """Perform one step of Adagrad on one parameter in place, and return 0.

    `exp_avg_sq` is the sum of squared gradients. `step` starts at 1. Raises `OpInputError` if the optimizer
    was not created, if a number is out of range, or if tensors do not match.
    """
    _optimizers.get_settings(optimizer_id)
    require_whole_number("cpu_adagrad", "step", step, 1, 64)
    check_decay("cpu_adagrad", weight_decay)

    def update(
        gradients: list[Tensor],
        parameters: list[Tensor],
        sums_of_squares: list[Tensor],
    ) -> None:
        [gradient] = gradients
        [parameter] = parameters
        [sum_of_squares] = sums_of_squares
        if weight_decay:
            gradient = gradient.add(parameter, alpha=weight_decay)
        sum_of_squares.addcmul_(gradient, gradient, value=1)
        denominator = sum_of_squares.sqrt().add_(epsilon)
        parameter.addcdiv_(gradient, denominator, value=-lr)

    lists = {"gradients": [grads], "parameters": [params], "exp_avg_sq": [exp_avg_sq]}
    update_in_groups("cpu_adagrad", lists, update)
    return 0
