"""Layers, pools, pads and losses with each option, and functions whose gradients are compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from accel_testing.conformance.compute.comparison import Operators, gradient
from accel_testing.conformance.compute.operators import tensor_on

__all__ = ["DIFFERENTIABLE", "LAYERS", "OPTIONS"]

LAYERS: Operators = {
    "linear": lambda x, w: functional.linear(
        x[0, 0], w[0, 0, :2].repeat(1, 3)[:, :8], w[0, 0, 0, :2]
    ),
    "conv1d": lambda x, w: functional.conv1d(
        x[:, :, 0], w[:, :, 0], w[:, 0, 0, 0], padding=1
    ),
    "conv2d": lambda x, w: functional.conv2d(x, w, w[:, 0, 0, 0]),
    "conv2d, stride=2, padding=1": lambda x, w: functional.conv2d(
        x, w, stride=2, padding=1
    ),
    "conv2d, dilation=2": lambda x, w: functional.conv2d(x, w, dilation=2),
    "conv2d, groups=2": lambda x, w: functional.conv2d(x, w[:, :2], groups=2),
    "conv2d, a group for each": lambda x, w: functional.conv2d(
        x, w[:, :1], w[:, 1, 1, 1], groups=4
    ),
    "conv2d, kernel 1": lambda x, w: functional.conv2d(x, w[:, :, :1, :1]),
    "conv_transpose2d": lambda x, w: functional.conv_transpose2d(
        x, w, w[0, :, 0, 0], stride=2, padding=1
    ),
    "gradients of conv2d": lambda x, w: [
        gradient(lambda y: (functional.conv2d(y, w, padding=1) * x).sum(), x),
        gradient(lambda v: (functional.conv2d(x, v, padding=1) * x).sum(), w),
        gradient(
            lambda b: (functional.conv2d(x, w, b, padding=1) * x).sum(),
            w[:, 0, 0, 0].clone(),
        ),
    ],
    "avg_pool2d": lambda x, _: functional.avg_pool2d(x, 3, 2, 1),
    "avg_pool2d, without the padding": lambda x, _: functional.avg_pool2d(
        x, 3, 2, 1, count_include_pad=False
    ),
    "max_pool2d, with places": lambda x, _: functional.max_pool2d(
        x.roll(1, 3), 3, 2, 1
    ),
    "adaptive_avg_pool2d": lambda x, _: functional.adaptive_avg_pool2d(x, (3, 2)),
    "batch_norm, training": lambda x, _: _batch_norm(x, training=True),
    "batch_norm, evaluating": lambda x, _: _batch_norm(x, training=False),
    "group_norm": lambda x, _: functional.group_norm(
        x, 2, x[0, :, 0, 0] + 1, x[0, :, 1, 1]
    ),
    "layer_norm of equal numbers": lambda x, _: functional.layer_norm(
        x * 0 + 3, x.shape[-1:], eps=0.25
    ),
    "layer_norm with a large eps": lambda x, _: functional.layer_norm(
        x, x.shape[-1:], eps=4.0
    ),
    "layer_norm, weight and bias": lambda x, _: functional.layer_norm(
        x, x.shape[-1:], x[0, 0, 0] + 1, x[0, 0, 1]
    ),
    "rms_norm": lambda x, _: functional.rms_norm(x, x.shape[-1:]),
    "cross_entropy, ignore_index": lambda x, _: functional.cross_entropy(
        x[0, 0], torch.tensor([1, -100, 3, 0, 2, -100, 1, 5], device=x.device)
    ),
    "cross_entropy, label_smoothing": lambda x, _: functional.cross_entropy(
        x[0, 0], torch.arange(8, device=x.device), label_smoothing=0.25
    ),
    "cross_entropy, weight": lambda x, _: functional.cross_entropy(
        x[0, 0],
        torch.arange(8, device=x.device),
        weight=torch.arange(8.0, device=x.device),
    ),
    "binary_cross_entropy_with_logits": lambda x, _: (
        functional.binary_cross_entropy_with_logits(
            x[0, 0], (x[0, 1] > 0).float(), pos_weight=torch.full_like(x[0, 0, 0], 2.0)
        )
    ),
    "smooth_l1_loss": lambda x, _: functional.smooth_l1_loss(x[0], x[1], beta=2.0),
    "huber_loss": lambda x, _: functional.huber_loss(x[0], x[1], delta=0.5),
    "kl_div": lambda x, _: functional.kl_div(
        x[0].log_softmax(1), x[1].softmax(1), reduction="batchmean"
    ),
    "attention, causal": lambda x, _: functional.scaled_dot_product_attention(
        x, x, x, is_causal=True
    ),
    "attention, mask": lambda x, _: functional.scaled_dot_product_attention(
        x, x, x, attn_mask=torch.ones_like(x[0, 0]).tril().bool()
    ),
    "attention, scale": lambda x, _: functional.scaled_dot_product_attention(
        x, x.flip(2), x, scale=0.5
    ),
    "var, not corrected": lambda x, _: [
        x.var((2, 3), correction=0),
        x.std(3, correction=2),
        x.var(),
    ],
    "glu": lambda x, _: functional.glu(x, 1),
    "prelu": lambda x, _: functional.prelu(x, x[0, :, 0, 0]),
    "cosine_similarity": lambda x, _: functional.cosine_similarity(x[0], x[1], -1),
    "normalize": lambda x, _: functional.normalize(x, dim=1),
    "cdist": lambda x, _: torch.cdist(x[0, 0], x[0, 1]),
}


def _batch_norm(x: torch.Tensor, *, training: bool) -> list[torch.Tensor]:
    """Return the normalized batch, the running mean and the running variance."""
    mean = torch.arange(4.0, device=x.device)
    var = torch.arange(1.0, 5.0, device=x.device)
    weight = torch.tensor([1.0, 2.0, -1.0, 0.5], device=x.device)
    out = functional.batch_norm(
        x, mean, var, weight, weight.flip(0), training=training, momentum=0.25, eps=0.5
    )
    return [out, mean, var]


def _self_attention(x: torch.Tensor, **options: Any) -> torch.Tensor:
    """Return the attention of `x`, which is used as queries, keys and values."""
    return functional.scaled_dot_product_attention(x, x, x, **options)


#: Functions whose gradients are compared at points where the functions are smooth.
DIFFERENTIABLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": torch.exp, "log": lambda x: (x + 4).log(), "sqrt": lambda x: (x + 4).sqrt(), "sin": torch.sin,
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": functional.gelu,
    "gelu, tanh": partial(functional.gelu, approximate="tanh"), "silu": functional.silu,
    "softplus": functional.softplus, "elu": functional.elu, "leaky_relu": functional.leaky_relu,
    "hardswish": functional.hardswish, "mish": functional.mish, "erf": torch.erf,
    "rsqrt": lambda x: (x + 4).rsqrt(),
    "pow": lambda x: (x + 4) ** 2.5, "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[1:], x[0], x[1]),
    "group_norm": lambda x: functional.group_norm(x[:, :4, None], 2),
    "batch_norm": lambda x: functional.batch_norm(x, None, None, x[0], x[1], training=True),
    "cumsum": lambda x: x.cumsum(1), "cumprod": lambda x: x.cumprod(1), "norm": lambda x: x.norm(dim=1),
    "std": lambda x: x.std(1), "logsumexp": lambda x: x.logsumexp(1), "matmul": lambda x: x @ x.T,
    "where": lambda x: torch.where(x > 0, x * 2, x * 3), "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "div": lambda x: x / (x.flip(0) + 4), "sort": lambda x: x.sort(1).values,
    "topk": lambda x: x.topk(2, 1).values,
    "max_pool1d": lambda x: functional.max_pool1d(x[None], 2),
    "avg_pool1d": lambda x: functional.avg_pool1d(x[None], 2),
    "pad": lambda x: functional.pad(x[None], (1, 1), mode="reflect"), "roll": lambda x: x.roll(1, 1),
    "attention": lambda x: _self_attention(x[None, None]),
    "interpolate": lambda x: functional.interpolate(x[None], scale_factor=2, mode="linear"),
    "cross_entropy": lambda x: functional.cross_entropy(x, torch.arange(len(x), device=x.device)),
    "smooth_l1_loss": lambda x: functional.smooth_l1_loss(x, x.flip(0) * 2),
}  # fmt: skip


# --- Options, with numbers for which the options matter ------------------------------------------------


def _pool(
    name: str, *arguments: Any, **options: Any
) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    """Return a function that pools images in the number of dimensions that the operator's name contains."""

    def pool(x: torch.Tensor, _: torch.Tensor) -> Any:
        if "1d" in name:
            images = x[:, :, 1]
        elif "3d" in name:
            images = x[:, None]
        else:
            images = x
        return getattr(functional, name)(images, *arguments, **options)

    return pool


def _distinct_negative_numbers(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return distinct negative numbers, among which a padding of zeros would be the maximum."""
    return -1.0 - (x + torch.arange(x.numel(), device=x.device).view_as(x) / 1024).abs()


def _below_zero(
    operator: Callable[[torch.Tensor, torch.Tensor], Any],
) -> Callable[..., Any]:
    """Return a function that applies the operator to negative numbers."""
    return lambda x, w: operator(_distinct_negative_numbers(x, w), w)


def _pad(mode: str, *pads: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return a function that pads one dimension for each pair in `pads`."""
    return lambda x, _: functional.pad(
        x[(0,) * (3 - len(pads) // 2)][None], pads, mode=mode
    )


def _grid(x: torch.Tensor) -> torch.Tensor:
    """Return sampling points inside the image, on its border and outside it."""
    theta = tensor_on(x, [[[0.75, 0.25, 0.125], [-0.25, 1.5, 0.0]]] * 2)
    return functional.affine_grid(theta, [2, 4, 5, 6], align_corners=False)


def _max_unpool2d(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return the largest number in each window at its position, and zeros elsewhere."""
    pooled, indices = functional.max_pool2d(
        x + torch.arange(8.0, device=x.device) / 64, 2, return_indices=True
    )
    return functional.max_unpool2d(pooled, indices, [2, 2])


def _loss(
    name: str, **options: Any
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return a function that computes the loss between two matrices."""
    return lambda x, _: getattr(functional, name)(x[0, 0] / 4, x[0, 1], **options)


def _probabilities(x: torch.Tensor) -> torch.Tensor:
    """Return numbers between 0 and 1."""
    return (x[0, 0] / 4).sigmoid()


def _recurrent_cell(
    cell: Callable[..., Any], gates: int, *, has_cell_state: bool = False
) -> Callable[..., Any]:
    """Return a function that computes one step of a recurrent cell with 8 inputs and 2 units."""

    def step(x: torch.Tensor, _: torch.Tensor) -> Any:
        inputs, hidden = x[0, 0] / 4, x[0, 1, :, :2] / 4
        weights = x[1].reshape(-1)[: gates * 2 * 10] / 8
        input_weights = weights[: gates * 16].view(-1, 8)
        hidden_weights = weights[gates * 16 :].view(-1, 2)
        input_bias = input_weights[:, 0].clone()
        hidden_bias = input_weights[:, 1].clone()
        state = (hidden, hidden * 2) if has_cell_state else hidden
        return cell(
            inputs, state, input_weights, hidden_weights, input_bias, hidden_bias
        )

    return step


_LABELS_WITH_IGNORED = [1, -100, 3, 0, 2, -100, 1, 5]

#: Functions of two 8 × 8 images with four channels of small integers, and of four 3 × 3 kernels.
OPTIONS: Operators = {
    "max_pool1d, padding, below zero": _below_zero(_pool("max_pool1d", 3, 2, 1)),
    "max_pool2d, padding, below zero": _below_zero(_pool("max_pool2d", 3, 2, 1)),
    "max_pool3d, padding, below zero": _below_zero(_pool("max_pool3d", (1, 3, 3), 2, (0, 1, 1))),
    "max_pool2d, places, padding, below zero": _below_zero(
        _pool("max_pool2d", 3, 2, 1, return_indices=True)
    ),
    "max_pool2d, dilation": _below_zero(_pool("max_pool2d", 2, 1, 0, 3)),
    "max_pool2d, ceil_mode": _below_zero(_pool("max_pool2d", 3, 2, 0, ceil_mode=True)),
    "adaptive_max_pool2d": _below_zero(_pool("adaptive_max_pool2d", (3, 5))),
    "adaptive_max_pool1d": _below_zero(_pool("adaptive_max_pool1d", 3)),
    "max_unpool2d": _max_unpool2d,
    "avg_pool1d, padding": _pool("avg_pool1d", 3, 2, 1),
    "avg_pool1d, without the padding": _pool("avg_pool1d", 3, 2, 1, count_include_pad=False),
    "avg_pool2d, ceil_mode": _pool("avg_pool2d", 3, 2, 0, ceil_mode=True),
    "avg_pool2d, divisor_override": _pool("avg_pool2d", 2, divisor_override=3),
    "avg_pool3d": _pool("avg_pool3d", (1, 3, 2), 2),
    "adaptive_avg_pool1d": _pool("adaptive_avg_pool1d", 3),
    "adaptive_avg_pool3d": _pool("adaptive_avg_pool3d", (2, 3, 5)),
    "lp_pool2d": lambda x, _: functional.lp_pool2d(x.abs(), 2, 3, 2),
    **{
        f"pad, {mode}, {len(pads) // 2} dimensions": _pad(mode, *pads)
        for mode in ("reflect", "replicate", "circular", "constant")
        for pads in ((2, 1), (2, 1, 1, 3), (2, 1, 1, 3, 1, 1))
    },
    "conv1d, same": lambda x, w: functional.conv1d(x[:, :, 0], w[:, :, 0], padding="same", dilation=2),
    "conv1d, stride, groups": lambda x, w: functional.conv1d(
        x[:, :, 0], w[:, :2, 0], stride=3, padding=2, groups=2
    ),
    "conv2d, two strides, pads and dilations": lambda x, w: functional.conv2d(
        x, w, None, (2, 1), (0, 3), (1, 2)
    ),
    "conv2d, one image": lambda x, w: functional.conv2d(x[0], w, w[:, 0, 0, 0], padding=1),
    "conv3d": lambda x, w: functional.conv3d(x[:, None], w[:, None], w[:, 0, 0, 0], padding=(2, 1, 0)),
    "conv_transpose1d, output_padding": lambda x, w: functional.conv_transpose1d(
        x[:, :, 0], w[:, :, 0], stride=2, padding=1, output_padding=1
    ),
    "conv_transpose2d, groups, dilation": lambda x, w: functional.conv_transpose2d(
        x, w[:, :2], stride=2, groups=2, dilation=2
    ),
    "conv_transpose3d": lambda x, w: functional.conv_transpose3d(x[:, :, None], w[:, :, None], stride=2),
    "unfold": lambda x, _: functional.unfold(x, 3, dilation=2, padding=1, stride=2),
    "fold": lambda x, _: functional.fold(x[:, :, 0].repeat(1, 1, 2), (5, 5), 2),
    **{
        f"grid_sample, {mode}, {pad}, align_corners={corners}": partial(
            lambda x, _, mode, pad, corners: functional.grid_sample(x, _grid(x), mode, pad, corners),
            mode=mode,
            pad=pad,
            corners=corners,
        )
        for mode in ("bilinear", "nearest")
        for pad in ("zeros", "border", "reflection")
        for corners in (True, False)
    },
    **{
        f"interpolate, {mode}, align_corners={corners}": partial(
            lambda x, _, mode, corners: functional.interpolate(
                x, size=(5, 13), mode=mode, align_corners=corners
            ),
            mode=mode,
            corners=corners,
        )
        for mode in ("bilinear", "bicubic")
        for corners in (True, False)
    },
    "interpolate, nearest": lambda x, _: functional.interpolate(x, size=(5, 13)),
    "interpolate, nearest-exact": lambda x, _: functional.interpolate(x, size=(5, 13), mode="nearest-exact"),
    "interpolate, area": lambda x, _: functional.interpolate(x, size=(3, 5), mode="area"),
    "interpolate, linear": lambda x, _: functional.interpolate(x[:, 0], scale_factor=1.5, mode="linear"),
    "interpolate, trilinear": lambda x, _: functional.interpolate(x[:, None], (3, 5, 9), mode="trilinear"),
    "pixel_unshuffle": lambda x, _: functional.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x, _: functional.channel_shuffle(x, 2),
    "instance_norm": lambda x, _: functional.instance_norm(x, weight=x[0, :, 0, 0], bias=x[0, :, 1, 1]),
    "local_response_norm": lambda x, _: functional.local_response_norm(x, 3, alpha=0.5, beta=0.5, k=2.0),
    "batch_norm without weights": lambda x, _: functional.batch_norm(
        x, x[0, :, 0, 0] * 0 + 1, x[0, :, 0, 1].abs() + 1
    ),
    "norms of a large mean": lambda x, _: [
        functional.layer_norm(x + 1024, x.shape[-1:]),
        functional.group_norm(x + 1024, 2),
        functional.batch_norm(x + 1024, None, None, training=True),
        functional.instance_norm(x + 1024),
    ],
    "losses of large numbers": lambda x, _: [
        functional.binary_cross_entropy_with_logits(x[0] * 64, (x[1] > 0).float(), reduction="none"),
        functional.cross_entropy(x[0, 0] * 64, torch.arange(8, device=x.device), reduction="none"),
        functional.soft_margin_loss(x[0] * 4, torch.where(x[1] > 0, 1.0, -1.0), reduction="none"),
    ],
    "layer_norm over two dimensions": lambda x, _: functional.layer_norm(x, x.shape[2:], x[0, 0], x[0, 1]),
    "group_norm, one group": lambda x, _: functional.group_norm(x, 1, eps=0.5),
    "rms_norm, weight and eps": lambda x, _: functional.rms_norm(x, x.shape[-1:], x[0, 0, 0], 0.5),
    "normalize(p=1)": lambda x, _: functional.normalize(x, 1.0, 2),
    "prelu, one weight": lambda x, _: functional.prelu(x, tensor_on(x, [0.25])),
    "glu of the last": lambda x, _: functional.glu(x, -1),
    "dropout while evaluating": lambda x, _: functional.dropout(x, 0.5, training=False),
    "dropout of all": lambda x, _: functional.dropout(x, 1.0, training=True),
    "pairwise_distance": lambda x, _: functional.pairwise_distance(x[0, 0], x[0, 1], 1.0),
    "attention, a mask of numbers": lambda x, _: functional.scaled_dot_product_attention(
        x, x, x, attn_mask=x[0, 0] / 2
    ),
    "attention, causal, fewer queries": lambda x, _: functional.scaled_dot_product_attention(
        x[:, :, :3], x, x, is_causal=True
    ),
    "attention, a mask for each batch": lambda x, _: functional.scaled_dot_product_attention(
        x, x, x.flip(3), attn_mask=(x[:, :1] > -4)
    ),
    "nll_loss, weights, ignore_index": lambda x, _: functional.nll_loss(
        x[0, 0].log_softmax(1), tensor_on(x, _LABELS_WITH_IGNORED), torch.arange(1.0, 9.0, device=x.device)
    ),
    **{
        f"nll_loss, {reduction}, ignore_index": partial(
            lambda x, _, reduction: functional.nll_loss(
                x[0, 0], tensor_on(x, _LABELS_WITH_IGNORED), ignore_index=-100, reduction=reduction
            ),
            reduction=reduction,
        )
        for reduction in ("mean", "sum", "none")
    },
    "nll_loss of images": lambda x, _: functional.nll_loss(
        x, x[:, 0].abs().long() % 4, tensor_on(x, [1.0, 2.0, 3.0, 4.0]), ignore_index=1
    ),
    "cross_entropy of chances": lambda x, _: functional.cross_entropy(x[0, 0], x[0, 1].softmax(1)),
    "cross_entropy, weight, smoothing, ignore_index": lambda x, _: functional.cross_entropy(
        x[0, 0], tensor_on(x, _LABELS_WITH_IGNORED), torch.arange(1.0, 9.0, device=x.device),
        label_smoothing=0.25,
    ),
    **{
        f"{name}, {reduction}": _loss(name, reduction=reduction)
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
        for reduction in ("none", "sum")
    },
    "binary_cross_entropy": lambda x, _: functional.binary_cross_entropy(
        _probabilities(x), (x[0, 1] > 0).float(), x[0, 2].abs()
    ),
    "binary_cross_entropy of 0 and 1": lambda x, _: functional.binary_cross_entropy(
        (x[0, 0] > 0).float(), (x[0, 1] > 0).float()
    ),
    "poisson_nll_loss": lambda x, _: functional.poisson_nll_loss(x[0, 0] / 4, x[0, 1].abs(), full=True),
    "gaussian_nll_loss": lambda x, _: functional.gaussian_nll_loss(x[0, 0], x[0, 1], x[0, 2].abs() + 0.5),
    "hinge_embedding_loss": lambda x, _: functional.hinge_embedding_loss(
        x[0, 0], torch.where(x[0, 1] > 0, 1, -1)
    ),
    "margin_ranking_loss": lambda x, _: functional.margin_ranking_loss(
        x[0, 0], x[0, 1], torch.where(x[0, 2] > 0, 1, -1), margin=0.5
    ),
    "multi_margin_loss": lambda x, _: functional.multi_margin_loss(
        x[0, 0], torch.arange(8, device=x.device), p=2, margin=0.5
    ),
    "soft_margin_loss": lambda x, _: functional.soft_margin_loss(
        x[0, 0], torch.where(x[0, 1] > 0, 1.0, -1.0)
    ),
    "triplet_margin_loss": lambda x, _: functional.triplet_margin_loss(x[0, 0], x[0, 1], x[0, 2], swap=True),
    "cosine_embedding_loss": lambda x, _: functional.cosine_embedding_loss(
        x[0, 0], x[0, 1], torch.where(x[0, 2, 0] > 0, 1, -1), margin=0.25
    ),
    "kl_div, log_target": lambda x, _: functional.kl_div(
        x[0, 0].log_softmax(1), x[0, 1].log_softmax(1), reduction="sum", log_target=True
    ),
    "kl_div of zeros": lambda x, _: functional.kl_div(
        x[0, 0].log_softmax(1), (x[0, 1] > 0).float(), reduction="none"
    ),
    "ctc_loss": lambda x, _: functional.ctc_loss(
        x.reshape(16, 2, 16)[:8].log_softmax(2), tensor_on(x, [[1, 2, 2], [3, 1, 0]]), tensor_on(x, [8, 7]),
        tensor_on(x, [3, 2]), zero_infinity=True,
    ),
    "gru_cell": _recurrent_cell(torch.gru_cell, 3),
    "lstm_cell": _recurrent_cell(torch.lstm_cell, 4, has_cell_state=True),
    "rnn_tanh_cell": _recurrent_cell(torch.rnn_tanh_cell, 1),
}  # fmt: skip

_REPEATED_ROWS = [3, 0, 3, 1]


def _reduce_along(x: torch.Tensor, *, name: str, dim: int) -> torch.Tensor:
    """Return the result of a tensor method along one of three dimensions."""
    blocks = x.view(5, 3, 2)
    if name == "topk":
        result: Any = blocks.topk(2, dim)
    else:
        result = getattr(blocks, name)(dim=dim)
    return result if isinstance(result, torch.Tensor) else result.values


def _with_zeros(x: torch.Tensor) -> torch.Tensor:
    """Return the matrix with zeros on its diagonal."""
    return x.masked_fill(torch.eye(5, 6, device=x.device).bool(), 0.0)


#: Functions whose gradient a kernel may compute incorrectly although the function's result is correct.
DIFFERENTIABLE |= {
    "max_pool2d, padding": lambda x: functional.max_pool2d(-1 - x[None, None].abs(), 3, 2, 1),
    "max_pool2d, windows that overlap": lambda x: functional.max_pool2d(x[None, None], 3, 1),
    "avg_pool2d, without the padding": lambda x: functional.avg_pool2d(
        x[None, None], 3, 2, 1, count_include_pad=False
    ),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x[None], (3, 4)),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x[None], (3, 4)),
    "conv2d, stride, its kernel": lambda x: functional.conv2d(
        x.flip(0)[None, None], x[None, None, :3, :3], stride=2, padding=1
    ),
    "conv_transpose2d": lambda x: functional.conv_transpose2d(
        x[None, None], x[None, None, :2, :3], stride=2
    ),
    "conv1d, groups": lambda x: functional.conv1d(x[None, :4], x[:4, None, :3], x[:4, 0], groups=4),
    "grid_sample": lambda x: functional.grid_sample(
        x[None, None], x[None, :4, :4].reshape(1, 2, 4, 2) / 3, align_corners=False
    ),
    "interpolate, bilinear": lambda x: functional.interpolate(
        x[None, None], size=(7, 9), mode="bilinear", align_corners=True
    ),
    "interpolate, nearest": lambda x: functional.interpolate(x[None, None], size=(7, 4)),
    "interpolate, bicubic": lambda x: functional.interpolate(x[None, None], size=(7, 9), mode="bicubic"),
    "pad, replicate": lambda x: functional.pad(x[None], (2, 1), mode="replicate"),
    "pad, circular": lambda x: functional.pad(x[None], (2, 1), mode="circular"),
    "pad, constant": lambda x: functional.pad(x, (-1, 2, 1, 0), value=3.0),
    "fold and unfold": lambda x: functional.fold(functional.unfold(x[None, None], 3), (5, 6), 3),
    "embedding, padding_idx": lambda x: functional.embedding(tensor_on(x, _REPEATED_ROWS), x, padding_idx=3),
    "embedding, one row twice": lambda x: functional.embedding(tensor_on(x, _REPEATED_ROWS), x),
    **{
        f"embedding_bag, {mode}": partial(
            lambda x, mode: functional.embedding_bag(
                tensor_on(x, _REPEATED_ROWS), x, tensor_on(x, [0, 1]), mode=mode
            ),
            mode=mode,
        )
        for mode in ("sum", "mean", "max")
    },
    "index_select": lambda x: x.index_select(1, tensor_on(x, _REPEATED_ROWS)),
    "index": lambda x: x[tensor_on(x, _REPEATED_ROWS), tensor_on(x, [1, 1, 1, 0])],
    "index of a mask": lambda x: x[x > 0],
    "index_put": lambda x: x.index_put((tensor_on(x, [3, 0]),), x[0] * 2),
    "index_add": lambda x: x.index_add(0, tensor_on(x, [3, 3]), x[:2] * 2, alpha=2),
    "gather": lambda x: x.gather(1, tensor_on(x, [[0, 0, 5]] * 5)),
    "scatter": lambda x: x.scatter(1, tensor_on(x, [[1], [0], [5], [2], [2]]), x[:, 1:2] * 3),
    "scatter_add": lambda x: x.scatter_add(1, tensor_on(x, [[1, 1]] * 5), x[:, 3:5] * 3),
    "masked_fill": lambda x: x.masked_fill(x > 0, 2.0) * x,
    "where, broadcast": lambda x: torch.where(x > 0, x[:1], x[:, :1]),
    "expand": lambda x: x[:, :1].expand(-1, 4) * x[:, 1:5],
    "repeat": lambda x: x.repeat(2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(tensor_on(x, [2, 0, 1, 3, 1]), 0),
    "unfold of windows": lambda x: x.unfold(1, 3, 2),
    "as_strided": lambda x: x.as_strided((4, 3), (6, 2), 1),
    "diagonal": lambda x: x.diagonal(1),
    "tril": lambda x: x.tril(-1) + x.triu(1),
    "cat": lambda x: torch.cat([x, x[:, :2] * 2], 1),
    "clamp": lambda x: x.clamp(-1, 1) * 2,
    "clamp by tensors": lambda x: x.clamp(x.flip(0) - 1, x.flip(1) + 1),
    "hardtanh": functional.hardtanh,
    "hardsigmoid": functional.hardsigmoid,
    "relu6": lambda x: functional.relu6(x * 4),
    "celu": functional.celu,
    "selu": functional.selu,
    "logsigmoid": functional.logsigmoid,
    "softsign": functional.softsign,
    "softshrink": lambda x: functional.softshrink(x, 0.75),
    "hardshrink": lambda x: functional.hardshrink(x, 0.75),
    "threshold": lambda x: functional.threshold(x, 0.5, 4.0),
    "prelu, its weight": lambda x: functional.prelu(x, x[0, :1]),
    "glu": lambda x: functional.glu(x, 1),
    "atan2": lambda x: torch.atan2(x, x.flip(0) + 3),
    "hypot": lambda x: torch.hypot(x, x.flip(0) + 3),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0) * 2),
    "lerp": lambda x: torch.lerp(x, x.flip(0), x.flip(1)),
    "addcmul": lambda x: torch.addcmul(x, x.flip(0), x.flip(1), value=2),
    "addcdiv": lambda x: torch.addcdiv(x, x.flip(0), x.flip(1) + 4, value=2),
    "tan": lambda x: (x / 4).tan(),
    "atan": torch.atan,
    "asin": lambda x: (x / 4).asin(),
    "log2": lambda x: (x + 4).log2(),
    "log1p": lambda x: (x + 4).log1p(),
    "expm1": torch.expm1,
    "erfinv": lambda x: (x / 4).erfinv(),
    "lgamma": lambda x: (x + 4).lgamma(),
    "logit": lambda x: (x / 8 + 0.5).logit(),
    "x ** n": lambda x: (x + 4) ** (x.flip(0) + 1),
    "2 ** x": lambda x: 2**x,
    "abs, reciprocal": lambda x: x.abs() + (x + 4).reciprocal(),
    "remainder": lambda x: x % 0.75 + torch.fmod(x.flip(0), 0.75),
    "amax of equals": lambda x: (x - x.detach() + x.detach().sign()).amax(1),
    "max of a row": lambda x: x.max(1).values + x.min(1).values,
    "median": lambda x: x.median(1).values,
    "kthvalue": lambda x: x.kthvalue(2, 1).values,
    "prod": lambda x: x.prod(1),
    "prod with a zero": lambda x: _with_zeros(x).prod(1) + x.sum(1),
    "var, correction": lambda x: x.var(1, correction=2),
    "var of all": lambda x: x.var()[None],
    "mean of two dimensions": lambda x: x.view(5, 2, 3).mean((0, 2)),
    "norm(1), norm(inf)": lambda x: x.norm(1, 1) + x.norm(float("inf"), 1),
    "norm of zeros": lambda x: (x * 0).norm(dim=1) + x.sum(1),
    "cummax": lambda x: x.cummax(1).values,
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cumprod with a zero": lambda x: _with_zeros(x).cumprod(1),
    **{
        f"{name}({dim})": partial(_reduce_along, name=name, dim=dim)
        for name in (
            "softmax", "log_softmax", "logsumexp", "cumsum", "cumprod", "sum", "mean", "prod", "amax", "amin",
            "std", "var", "norm", "logcumsumexp", "sort", "topk", "max", "min",
        )
        for dim in (0, 1)
    },
    "bmm": lambda x: torch.bmm(x[None], x.T[None]),
    "baddbmm": lambda x: torch.baddbmm(x[None, :, :5], x[None], x.T[None], beta=2, alpha=3),
    "addmm": lambda x: torch.addmm(x[0, :5], x, x.T, beta=2, alpha=3),
    "addmv": lambda x: torch.addmv(x[:, 0], x, x[1], beta=2, alpha=3),
    "dot": lambda x: torch.dot(x[0], x[1])[None],
    "linear, bias": lambda x: functional.linear(x, x[:3], x[0, :3]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x.flip(0)),
    "solve": lambda x: torch.linalg.solve(x[:, :5] + 9 * torch.eye(5, device=x.device), x),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.T + 9 * torch.eye(5, device=x.device)),
    "rms_norm": lambda x: functional.rms_norm(x, x.shape[1:], x[0]),
    "instance_norm": lambda x: functional.instance_norm(x[None], weight=x[:, 0], bias=x[:, 1]),
    "batch_norm, evaluating": lambda x: functional.batch_norm(
        x, x[0].detach(), x[1].detach().abs() + 1, x[2], x[3]
    ),
    "group_norm, weights": lambda x: functional.group_norm(x[None, :4], 2, x[:4, 0], x[:4, 1]),
    "normalize": lambda x: functional.normalize(x, dim=1),
    "cosine_similarity": lambda x: functional.cosine_similarity(x, x.flip(0) + 1, 1),
    "cdist": lambda x: torch.cdist(x, x.flip(1)),
    "nll_loss, weights, ignore_index": lambda x: functional.nll_loss(
        x, tensor_on(x, [1, -100, 3, 0, 1]), x[0].detach().abs()
    )[None],
    "cross_entropy, ignore_index, smoothing": lambda x: functional.cross_entropy(
        x, tensor_on(x, [1, -100, 3, 0, 1]), label_smoothing=0.25
    )[None],
    "binary_cross_entropy": lambda x: functional.binary_cross_entropy(
        x.sigmoid(), (x.detach() > 0).float()
    )[None],
    "binary_cross_entropy_with_logits": lambda x: functional.binary_cross_entropy_with_logits(
        x, (x.detach() > 0).float(), pos_weight=x[0].detach().abs()
    )[None],
    "kl_div": lambda x: functional.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="sum")[None],
    "l1_loss": lambda x: functional.l1_loss(x, x.flip(1) * 2)[None],
    "mse_loss": lambda x: functional.mse_loss(x, x.flip(1) * 2)[None],
    "huber_loss": lambda x: functional.huber_loss(x, x.flip(1) * 2, delta=0.5)[None],
    "attention, causal": lambda x: _self_attention(x[None, None], is_causal=True),
    "attention, a mask": lambda x: _self_attention(x[None, None], attn_mask=x[:, :5].detach() > -2),
    "to float16 and back": lambda x: x.half().float() * 2,
    "copy into a part": lambda x: torch.zeros_like(x).index_copy(0, tensor_on(x, [2, 0]), x[:2]),
}  # fmt: skip
