"""Kernels of whole layers: convolution, pooling, dropout, the loss; see `kernels.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stand_in.kernels import Attributes, generator, ints, kernel, torch

__all__: list[str] = []


def _convolution(attributes: Attributes) -> tuple[list[int], list[int], list[int], int]:
    """Stride, padding, dilation and groups; the attributes have a number for each of N, C, H, W."""
    top, _, left, _ = attributes["pads"]
    return attributes["strides"][2:], [top, left], attributes["dilations"][2:], attributes["groups"]


@kernel("Conv2D")
def _conv(inputs: Sequence[Any], attributes: Attributes) -> Any:
    stride, padding, dilation, groups = _convolution(attributes)
    bias = inputs[2] if len(inputs) > 2 else None
    return torch.conv2d(inputs[0], inputs[1], bias, stride, padding, dilation, groups)


def _conv_backward(grad: Any, x: Any, weight: Any, attributes: Attributes, wanted: int) -> Any:
    stride, padding, dilation, groups = _convolution(attributes)
    mask = [wanted == place for place in range(3)]
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, stride, padding, dilation, False, [0, 0], groups, mask
    )[wanted]


@kernel("Conv2DBackpropInput")
def _conv_input(inputs: Sequence[Any], attributes: Attributes) -> Any:
    shape, weight, grad = inputs
    return _conv_backward(grad, grad.new_empty(ints(shape)), weight, attributes, 0)


@kernel("Conv2DBackpropFilter")
def _conv_filter(inputs: Sequence[Any], attributes: Attributes) -> Any:
    x, shape, grad = inputs
    return _conv_backward(grad, x, grad.new_empty(ints(shape)), attributes, 1)


def _pool(x: Any, attributes: Attributes) -> tuple[list[Any], Any, Any]:
    window = [attributes[name][1:3] for name in ("ksize", "strides", "pads")]
    dilation = attributes.get("dilation", attributes.get("dilations", [1, 1, 1, 1]))[1:3]
    given = [*window, dilation, attributes["ceil_mode"]]
    return given, *torch.ops.aten.max_pool2d_with_indices(x, *given)


@kernel("MaxPoolWithArgmaxV1")
def _max_pool(inputs: Sequence[Any], attributes: Attributes) -> Any:
    """The second output, where each maximum was, is in the vendor's own layout: the gradient looks again."""
    return _pool(inputs[0], attributes)[1], None


@kernel("MaxPoolGradWithArgmaxV1")
def _max_pool_grad(inputs: Sequence[Any], attributes: Attributes) -> Any:
    x, grad = inputs[:2]
    given, _, indices = _pool(x, attributes)
    return torch.ops.aten.max_pool2d_with_indices_backward(grad, x, *given, indices)


@kernel("StatelessDropOutGenMask")
def _dropout_mask(inputs: Sequence[Any], attributes: Attributes) -> Any:
    """One bit an element, set where it is kept; padded to 128 elements."""
    shape, keep, *seeds = inputs
    count = math.prod(ints(shape))
    kept = torch.rand(count, generator=generator(*seeds)) < keep
    bits = torch.zeros(-(-count // 128) * 128, dtype=torch.uint8)
    bits[:count] = kept
    powers = 2 ** torch.arange(8, dtype=torch.uint8)
    return (bits.view(-1, 8) * powers).sum(1, dtype=torch.uint8)


@kernel("DropOutDoMask")
def _dropout(inputs: Sequence[Any], attributes: Attributes) -> Any:
    x, mask, keep = inputs
    bits = (mask.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8)) & 1
    return x * bits.flatten()[: x.numel()].view(x.shape) / keep


@kernel("Gelu")
def _gelu(inputs: Sequence[Any], attributes: Attributes) -> Any:
    return torch.nn.functional.gelu(inputs[0])


@kernel("GeluGrad")
def _gelu_grad(inputs: Sequence[Any], attributes: Attributes) -> Any:
    return torch.ops.aten.gelu_backward(inputs[0], inputs[1])


@kernel("LayerNorm")
def _layer_norm(inputs: Sequence[Any], attributes: Attributes) -> Any:
    """The output, the mean and, for the gradient, one over the standard deviation."""
    x, weight, bias = inputs
    shape = x.shape[attributes["begin_norm_axis"] :]
    return torch.ops.aten.native_layer_norm(x, shape, weight, bias, attributes["epsilon"])


@kernel("LayerNormGrad")
def _layer_norm_grad(inputs: Sequence[Any], attributes: Attributes) -> Any:
    grad, x, scale, mean, weight = inputs
    bias = torch.empty_like(weight)
    return torch.ops.aten.native_layer_norm_backward(
        grad, x, weight.shape, mean, scale, weight, bias, [True] * 3
    )


@kernel("SoftmaxV2")
def _softmax(inputs: Sequence[Any], attributes: Attributes) -> Any:
    return torch.softmax(inputs[0], attributes["axes"][0])


@kernel("LogSoftmaxV2")
def _log_softmax(inputs: Sequence[Any], attributes: Attributes) -> Any:
    return torch.log_softmax(inputs[0], attributes["axes"][0])


@kernel("LogSoftmaxGrad")
def _log_softmax_grad(inputs: Sequence[Any], attributes: Attributes) -> Any:
    grad, output = inputs
    return torch.ops.aten._log_softmax_backward_data(grad, output, attributes["axis"][0], output.dtype)


def _loss(attributes: Attributes) -> tuple[int, int]:
    return ["none", "mean", "sum"].index(attributes["reduction"]), attributes["ignore_index"]


@kernel("NLLLoss")
def _nll_loss(inputs: Sequence[Any], attributes: Attributes) -> Any:
    x, target, weight = inputs
    return torch.ops.aten.nll_loss_forward(x, target.long(), weight, *_loss(attributes))


@kernel("NLLLossGrad")
def _nll_loss_grad(inputs: Sequence[Any], attributes: Attributes) -> Any:
    x, grad, target, weight, total = inputs
    return torch.ops.aten.nll_loss_backward(grad, x, target.long(), weight, *_loss(attributes), total)


@kernel("ArgMaxV2")
def _argmax(inputs: Sequence[Any], attributes: Attributes) -> Any:
    return torch.argmax(inputs[0], int(inputs[1]), keepdim=attributes["keep_dims"])


@kernel("Lerp")
def _lerp(inputs: Sequence[Any], attributes: Attributes) -> Any:
    return torch.lerp(inputs[0], inputs[1], inputs[2].item())


@kernel("Addcmul")
def _addcmul(inputs: Sequence[Any], attributes: Attributes) -> Any:
    return torch.addcmul(*inputs[:3], value=inputs[3].item())


@kernel("Addcdiv")
def _addcdiv(inputs: Sequence[Any], attributes: Attributes) -> Any:
    return torch.addcdiv(*inputs[:3], value=inputs[3].item())
