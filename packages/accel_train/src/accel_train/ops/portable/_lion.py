"""Perform a step of Lion, for the operators `fused_lion` and `cpu_lion`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from accel_train.ops.arguments import check_decay, check_rates
from accel_train.ops.portable._tensors import update_in_groups

__all__ = ["lion"]


def lion(
    op: str,
    lists: Mapping[str, Sequence[Tensor]],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
) -> None:
    """Perform one step of Lion in place.

    `lists` contains, in this order, the gradients, the parameters, and the moving averages of the gradients.
    `op` is the operator's name for error messages. If an average and a gradient cancel out, the sign is 0 and
    the weight only decays, as in the paper. DeepSpeed's compiled kernels change such a weight by `lr`: they
    increase it on CUDA and decrease it on the CPU.

    Raises `OpInputError` if a number is out of range, or if tensors do not match.
    """
    check_rates(op, beta1, beta2)
    check_decay(op, weight_decay)

    def update(
        gradients: list[Tensor], parameters: list[Tensor], averages: list[Tensor]
    ) -> None:
        directions = torch._foreach_lerp(averages, gradients, 1 - beta1)
        torch._foreach_sign_(directions)
        if weight_decay:
            # The decay is added to the step, so that the weight is rounded once and not twice.
            torch._foreach_add_(directions, parameters, alpha=weight_decay)
        torch._foreach_add_(parameters, directions, alpha=-lr)
        torch._foreach_lerp_(averages, gradients, 1 - beta2)

    update_in_groups(op, lists, update)
