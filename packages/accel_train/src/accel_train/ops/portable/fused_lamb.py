"""Provide the function of the operator `fused_lamb`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from accel_core.errors import OpInputError
from accel_train.ops.arguments import check_decay, require_tensor, require_writable
from accel_train.ops.portable._tensors import bias_corrections, update_in_groups

__all__ = ["lamb"]


def lamb(
    p: Tensor,
    p_copy: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    max_coeff: float,
    min_coeff: float,
    eps: float,
    grad_scale: float,
    step: int,
    mode: int,
    bias_correction: int,
    decay: float,
) -> Tensor:
    """Perform one step of LAMB on one parameter in place, and return the trust ratio.

    `p` is the parameter, and `g` is the gradient, which is divided by `grad_scale`. `m` is the moving average
    of the gradient, and `v` that of the squared gradient. The new parameter is also copied to `p_copy`, in
    the data type of `p_copy`, unless `p_copy` is empty. With `mode` 0, `eps` is added under the square root;
    with `mode` 1, it is added to the square root.

    The trust ratio `|p| / |update|` is limited to the range from `min_coeff` to `max_coeff`, and is 1 if
    either norm is 0. It is a tensor with one element on the parameter's device. As in the compiled kernel,
    bias correction scales the step instead of the averages.

    Raises `OpInputError` if tensors do not match, if a number is out of range, or if `mode` has any other
    value.
    """
    if mode not in (0, 1):
        raise OpInputError(
            f"fused_lamb: mode is {mode}, expected 0 (eps under the square root) or 1 (eps added to the root)"
        )
    for name, tensor in (("p", p), ("p_copy", p_copy)):
        require_tensor(f"fused_lamb: {name}", tensor)
    require_writable("fused_lamb: p_copy", p_copy)
    check_decay("fused_lamb", decay)
    if p_copy.numel() not in (0, p.numel()):
        raise OpInputError(
            f"fused_lamb: p_copy has {p_copy.numel()} elements, expected {p.numel()} or 0"
        )
    correction1, correction2 = bias_corrections(
        "fused_lamb", beta1, beta2, step, bool(bias_correction)
    )
    step_size = lr * math.sqrt(correction2) / correction1
    ratio_dtype = torch.float64 if p.dtype == torch.float64 else torch.float32
    ratio = torch.ones(1, dtype=ratio_dtype, device=p.device)

    def update(
        gradients: list[Tensor],
        parameters: list[Tensor],
        averages: list[Tensor],
        squares: list[Tensor],
    ) -> None:
        [gradient] = gradients
        [weight] = parameters
        [average] = averages
        [square] = squares
        if grad_scale != 1:
            gradient = gradient / grad_scale
        average.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        if mode == 1:
            denominator = square.sqrt().add_(eps)
        else:
            denominator = square.add(eps).sqrt_()
        change = torch.div(average, denominator, out=denominator)
        change.add_(weight, alpha=decay)
        weight_norm = torch.linalg.vector_norm(weight)
        change_norm = torch.linalg.vector_norm(change)
        limited_ratio = (weight_norm / change_norm).clamp(min_coeff, max_coeff)
        # If a norm is 0, the ratio is 1. It is selected on the device, so that the step does not wait for a
        # copy to the host.
        is_defined = (weight_norm != 0) & (change_norm != 0)
        one = torch.ones_like(limited_ratio)
        ratio.copy_(torch.where(is_defined, limited_ratio, one))
        weight.sub_(change.mul_(ratio[0] * step_size))

    lists = {"gradients": [g], "parameters": [p], "exp_avg": [m], "exp_avg_sq": [v]}
    # The tensors are not split, because LAMB needs the norms of whole tensors.
    update_in_groups("fused_lamb", lists, update, elementwise=False)
    if p_copy.numel():
        with torch.no_grad():
            p_copy.copy_(p.reshape(p_copy.shape))
    return ratio
