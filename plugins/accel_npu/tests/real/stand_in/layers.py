"""Kernels of whole layers: convolution, pooling, dropout, the loss; see `kernels.py`."""

import math

from stand_in.kernels import KERNELS, generator, ints, torch


def _convolution(attributes):
    """Stride, padding, dilation and groups; the attributes have a number for each of N, C, H, W."""
    top, _, left, _ = attributes["pads"]
    return (
        attributes["strides"][2:],
        [top, left],
        attributes["dilations"][2:],
        attributes["groups"],
    )


def _conv(inputs, attributes):
    stride, padding, dilation, groups = _convolution(attributes)
    bias = inputs[2] if len(inputs) > 2 else None
    return torch.conv2d(inputs[0], inputs[1], bias, stride, padding, dilation, groups)


def _conv_backward(grad, x, weight, attributes, wanted):
    stride, padding, dilation, groups = _convolution(attributes)
    mask = [wanted == place for place in range(3)]
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, stride, padding, dilation, False, [0, 0], groups, mask
    )[wanted]


def _pool(x, attributes):
    window = [attributes[name][1:3] for name in ("ksize", "strides", "pads")]
    dilation = attributes.get("dilation", attributes.get("dilations", [1, 1, 1, 1]))[
        1:3
    ]
    given = [*window, dilation, attributes["ceil_mode"]]
    return given, *torch.ops.aten.max_pool2d_with_indices(x, *given)


def _max_pool_grad(inputs, attributes):
    x, grad = inputs[:2]
    given, _, indices = _pool(x, attributes)
    return torch.ops.aten.max_pool2d_with_indices_backward(grad, x, *given, indices)


def _dropout_mask(inputs, attributes):
    """One bit an element, set where it is kept; padded to 128 elements."""
    shape, keep, *seeds = inputs
    count = math.prod(ints(shape))
    kept = torch.rand(count, generator=generator(*seeds)) < keep
    bits = torch.zeros(-(-count // 128) * 128, dtype=torch.uint8)
    bits[:count] = kept
    powers = 2 ** torch.arange(8, dtype=torch.uint8)
    return (bits.view(-1, 8) * powers).sum(1, dtype=torch.uint8)


def _dropout(inputs, attributes):
    x, mask, keep = inputs
    bits = (mask.unsqueeze(1) >> torch.arange(8, dtype=torch.uint8)) & 1
    return x * bits.flatten()[: x.numel()].view(x.shape) / keep


def _layer_norm_grad(inputs, attributes):
    grad, x, scale, mean, weight = inputs
    given = (
        grad,
        x,
        weight.shape,
        mean,
        scale,
        weight,
        torch.empty_like(weight),
        [True] * 3,
    )
    return torch.ops.aten.native_layer_norm_backward(*given)


def _loss(attributes):
    return ["none", "mean", "sum"].index(attributes["reduction"]), attributes[
        "ignore_index"
    ]


KERNELS.update(
    {
        "Conv2D": _conv,
        "Conv2DBackpropInput": lambda x, given: _conv_backward(
            x[2], x[2].new_empty(ints(x[0])), x[1], given, 0
        ),
        "Conv2DBackpropFilter": lambda x, given: _conv_backward(
            x[2], x[0], x[2].new_empty(ints(x[1])), given, 1
        ),
        # The second output, where each maximum was, is in the vendor's own layout: the gradient looks again.
        "MaxPoolWithArgmaxV1": lambda x, given: (_pool(x[0], given)[1], None),
        "MaxPoolGradWithArgmaxV1": _max_pool_grad,
        "StatelessDropOutGenMask": _dropout_mask,
        "DropOutDoMask": _dropout,
        "Gelu": lambda x, _: torch.nn.functional.gelu(x[0]),
        "GeluGrad": lambda x, _: torch.ops.aten.gelu_backward(x[0], x[1]),
        # The output, the mean and, for the gradient, one over the standard deviation.
        "LayerNorm": lambda x, given: torch.ops.aten.native_layer_norm(
            x[0], x[0].shape[given["begin_norm_axis"] :], x[1], x[2], given["epsilon"]
        ),
        "LayerNormGrad": _layer_norm_grad,
        "SoftmaxV2": lambda x, given: torch.softmax(x[0], given["axes"][0]),
        "LogSoftmaxV2": lambda x, given: torch.log_softmax(x[0], given["axes"][0]),
        "LogSoftmaxGrad": lambda x, given: torch.ops.aten._log_softmax_backward_data(
            x[0], x[1], given["axis"][0], x[1].dtype
        ),
        "NLLLoss": lambda x, given: torch.ops.aten.nll_loss_forward(
            x[0], x[1].long(), x[2], *_loss(given)
        ),
        "NLLLossGrad": lambda x, given: torch.ops.aten.nll_loss_backward(
            x[1], x[0], x[2].long(), x[3], *_loss(given), x[4]
        ),
        "ArgMaxV2": lambda x, given: torch.argmax(
            x[0], int(x[1]), keepdim=given["keep_dims"]
        ),
        "Lerp": lambda x, _: torch.lerp(x[0], x[1], x[2].item()),
        "Addcmul": lambda x, _: torch.addcmul(*x[:3], value=x[3].item()),
        "Addcdiv": lambda x, _: torch.addcdiv(*x[:3], value=x[3].item()),
    }
)
