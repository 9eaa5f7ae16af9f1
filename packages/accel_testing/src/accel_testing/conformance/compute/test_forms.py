"""Checks of operators with arguments of various shapes, types, signs and memory layouts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.compute.comparison import (
    Operators,
    assert_matches_cpu,
    claimed_types,
    gradient,
)
from accel_testing.conformance.compute.layers import DIFFERENTIABLE, LAYERS, OPTIONS
from accel_testing.conformance.compute.operators import (
    CASTS,
    ELEMENTARY,
    FOREACH,
    INDEXED,
    OPTIMIZERS,
    PAIRS,
    PRODUCTS,
    REDUCED,
    SMALL,
    SMOOTH,
)

__all__ = ["TestShapesAndTypes"]

#: A number of rows larger than the number of blocks in a grid's second dimension.
_ROWS = 70_001
#: Lengths close to the widths of vectors, warps, blocks and tiles.
_VECTOR_LENGTHS = (
    1,
    2,
    3,
    5,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    33,
    63,
    65,
    127,
    129,
    255,
    257,
    1023,
    1025,
)

_BROADCAST: Operators = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "lt": lambda a, b: a < b,
    "maximum": torch.maximum,
    "pow": lambda a, b: a**b,
    "where": lambda a, b: torch.where(a > b, a, b),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "lerp": lambda a, b: torch.lerp(a, b.expand_as(a + b), 0.25),
    "masked_fill": lambda a, b: (a + b).masked_fill(b > 3, -7.0),
    "add_": lambda a, b: (a + b).add_(b),
}

#: Operators on two types whose results are exact for every width of a matrix unit.
_MIXED_TYPES: Operators = {
    "int64 * 0.5": lambda i, _: i * 0.5,
    "int64 / 2": lambda i, _: i / 2,
    "int64 + float32": lambda i, f: i + f,
    "int64 * float32": lambda i, f: i * f,
    "float32 + int8": lambda i, f: f + i.to(torch.int8),
    "float32 * bool": lambda i, f: f * (i > 2),
    "int32 + int8": lambda i, _: i.to(torch.int32) + i.to(torch.int8),
    "uint8 + int8": lambda i, _: i.to(torch.uint8) + i.to(torch.int8),
    "bool + bool": lambda i, _: (i > 2) + (i > 3),
    "bool sum": lambda i, _: (i > 2).sum(),
    "int32 < float32": lambda i, f: i.to(torch.int32) < f,
    "where(int64, float32)": lambda i, f: torch.where(i > 2, i, f),
    "where(float32, int64)": lambda i, f: torch.where(i > 2, f, i),
    "where(bool, number)": lambda i, f: torch.where(i > 2, f, 3),
    "cat(int64, float32)": lambda i, f: torch.cat([i, f]),
    "cat(bool, int32)": lambda i, _: torch.cat([i > 2, i.to(torch.int32)]),
    "int64 to bool": lambda i, _: (i - 2).bool(),
    "float32 to uint8": lambda _, f: f.abs().to(torch.uint8),
    "int64 mean(dtype)": lambda i, _: i.mean(dtype=torch.float32),
    "float16 + float32": lambda _, f: f.half() + f,
    "float16 * a number": lambda _, f: f.half() * 0.5,
    "float32 * int64 of no dimension": lambda i, f: f * i.sum(),
    "int8 * int64 of no dimension": lambda i, _: i.to(torch.int8) * i[0],
    "float32 >= int64 of no dimension": lambda i, f: f >= i[1],
    "sin of int64": lambda i, _: i.sin(),
}

_SIGNED: Operators = {
    "a // b": lambda a, b: a // b,
    "a % b": lambda a, b: a % b,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "div, trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div, floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "a / b": lambda a, b: a / b,
    "a // 3": lambda a, _: a // 3,
    "a // -3": lambda a, _: a // -3,
    "a % 3": lambda a, _: a % 3,
    "a % -3": lambda a, _: a % -3,
    "fmod(a, -3)": lambda a, _: torch.fmod(a, -3),
    "abs": lambda a, _: a.abs(),
    "neg": lambda a, _: -a,
    "sign": lambda a, _: a.sign(),
    "a ** 2": lambda a, _: a**2,
    "a ** 3": lambda a, _: a**3,
    "2 ** abs(b)": lambda _, b: 2 ** b.abs(),
    "clamp(-3, 4)": lambda a, _: a.clamp(-3, 4),
    "a >= b": lambda a, b: a >= b,
    "a >= 3": lambda a, _: a >= 3,
    "a <= -3": lambda a, _: a <= -3,
    "a != b": lambda a, b: a != b,
    "rsub": lambda a, _: 1 - a,
}
_BITS: Operators = {
    "a & b": lambda a, b: a & b,
    "a | b": lambda a, b: a | b,
    "a ^ b": lambda a, b: a ^ b,
    "~a": lambda a, _: ~a,
    "a >> 1": lambda a, _: a >> 1,
    "bitwise_right_shift(a, 1)": lambda a, _: torch.bitwise_right_shift(a, 1),
    "a << 2": lambda a, _: a << 2,
    "a * 1000003": lambda a, _: a * 1000003,
    "c * c, where c is a * 1000003": lambda a, _: (a * 1000003) * (a * 1000003),
    "a * b * a": lambda a, b: a * b * a * a * a * a,
    "a + largest": lambda a, _: a + torch.iinfo(a.dtype).max,
    "gcd": torch.gcd,
}


def _with_signs(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], Any]:
    """Return a function that also returns the signs, because 0.0 and -0.0 compare as equal."""

    def call(a: torch.Tensor) -> list[torch.Tensor]:
        result = function(a).cpu()
        return [result, result.signbit()]

    return call


_ON_ZEROS: Operators = {
    name: _with_signs(work)
    for name, work in {
        "a copy": lambda a: a.clone(),
        "-a": lambda a: -a,
        "abs": lambda a: a.abs(),
        "a * -1": lambda a: a * -1,
        "a + -0.0": lambda a: a + -0.0,
        "a + 0.0": lambda a: a + 0.0,
        "a * 0": lambda a: a * 0,
        "sqrt of zeros": lambda a: a[:2].sqrt(),
        "1 / a": lambda a: 1 / a,
        "atan2": lambda a: torch.atan2(a, a.roll(1)),
        "copysign": lambda a: torch.copysign(torch.ones_like(a), a),
        "round": lambda a: (a * 0.1).round(),
        "trunc": lambda a: (a * 0.1).trunc(),
        "ceil": lambda a: (a * 0.1).ceil(),
        "transposed copy": lambda a: a.view(2, -1).T.contiguous(),
        "to float64 and back": lambda a: a.double().float(),
        "sin": lambda a: a.sin(),
    }.items()
}
_ON_ZEROS = {
    **_ON_ZEROS,
    "signbit": lambda a: a.signbit(),
    "sign": lambda a: a.sign(),
    "a == 0": lambda a: a == 0,
}

_ON_INFINITIES: Operators = {
    "masked_fill(a > 0, -inf)": lambda a: a.masked_fill(a > 0, -torch.inf),
    "softmax": lambda a: a.softmax(1),
    "log_softmax": lambda a: a.log_softmax(1),
    "logsumexp": lambda a: a.logsumexp(1),
    "sigmoid": lambda a: a.sigmoid(),
    "tanh": lambda a: a.tanh(),
    "exp": lambda a: a.exp(),
    "expm1": lambda a: a.expm1(),
    "log1p": lambda a: a.abs().log1p(),
    "softplus": functional.softplus,
    "silu": functional.silu,
    "logsigmoid": functional.logsigmoid,
    "reciprocal": lambda a: a.reciprocal(),
    "rsqrt": lambda a: a.abs().rsqrt(),
    "a - a": lambda a: a - a,
    "a * 0": lambda a: a * 0,
    "max(1)": lambda a: a.max(1),
    "min(1)": lambda a: a.min(1),
    "sum(1)": lambda a: a.sum(1),
    "cumsum(1)": lambda a: a.cumsum(1),
    "norm(inf)": lambda a: a.norm(float("inf")),
    "sort": lambda a: a.sort(1).values,
    "isinf": lambda a: [a.isinf(), a.isposinf(), a.isneginf()],
    "nan_to_num": lambda a: a.nan_to_num(),
    "clamp": lambda a: a.clamp(-5, 5),
    "gradient of logsumexp": lambda a: gradient(
        lambda x: x.clamp(-90, 90).logsumexp(1).sum(), a
    ),
}

#: Each changes `a` in place, most of them through a view.
_IN_PLACE: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "a.add_(b)": lambda a, b: a.add_(b),
    "a.add_(b, alpha=3)": lambda a, b: a.add_(b, alpha=3),
    "a.sub_(b, alpha=2)": lambda a, b: a.sub_(b, alpha=2),
    "a.mul_(2)": lambda a, _: a.mul_(2),
    "a.add_(a)": lambda a, _: a.add_(a),
    "a.T.mul_(b.T)": lambda a, b: a.T.mul_(b.T),
    "a[::2].add_(1)": lambda a, _: a[::2].add_(1),
    "a[:, 1].mul_(3)": lambda a, _: a[:, 1].mul_(3),
    "a[1:3, ::2].copy_(b[1:3, ::2])": lambda a, b: a[1:3, ::2].copy_(b[1:3, ::2]),
    "a.T.copy_(b.T)": lambda a, b: a.T.copy_(b.T),
    "a.copy_(b[:1])": lambda a, b: a.copy_(b[:1]),
    "a[:, ::3].fill_(9)": lambda a, _: a[:, ::3].fill_(9),
    "a[1].zero_()": lambda a, _: a[1].zero_(),
    "a[a > 5] = 0": lambda a, _: a.__setitem__(a > 5, 0),
    "a[[0, 2]] = b[[1, 3]]": lambda a, b: a.__setitem__([0, 2], b[[1, 3]]),
    "a[-1, -2] = 4": lambda a, _: a.__setitem__((-1, -2), 4),
    "a.masked_fill_(a > 3, 1)": lambda a, _: a.masked_fill_(a > 3, 1),
    "a.T.masked_fill_(b.T > 3, 1)": lambda a, b: a.T.masked_fill_(b.T > 3, 1),
    "a.clamp_(2, 6)": lambda a, _: a.clamp_(2, 6),
    "a.T.clamp_(2, 6)": lambda a, _: a.T.clamp_(2, 6),
    "a.addcmul_(a, b, value=2)": lambda a, b: a.addcmul_(a, b, value=2),
    "a.addcdiv_(a, b + 1)": lambda a, b: a.addcdiv_(a, b + 1),
    "a.lerp_(b, 0.5)": lambda a, b: a.lerp_(b, 0.5),
    "a.addmm_(a, b)": lambda a, b: a[:4, :4].addmm_(
        b[:4, :4], b[:4, :4], beta=2, alpha=3
    ),
    "a.index_fill_": lambda a, _: a.index_fill_(
        0, torch.tensor([1, 3], device=a.device), 8
    ),
    "a.index_copy_": lambda a, b: a.index_copy_(
        0, torch.tensor([3, 0], device=a.device), b[:2]
    ),
    "a.scatter_": lambda a, b: a.scatter_(1, (b[:, :1] * 0).long(), b),
    "a.cumsum_": lambda a, _: a.cumsum_(1),
    "a.relu_": lambda a, _: (a - 4).relu_(),
    "a.exp_ of a view": lambda a, _: a[:, 2:4].exp_(),
    "a.tril_": lambda a, _: a.tril_(-1),
    "torch.add(a, b, out=a.T.T)": lambda a, b: torch.add(a, b, out=a.T.T),
    "torch.mul(b.T, b.T, out=a.T)": lambda a, b: torch.mul(b.T, b.T, out=a.T),
    "torch.mm(out=)": lambda a, b: torch.mm(b[:4, :4], b[:4, :4], out=a[:4, :4]),
    "torch.sum(out=)": lambda a, b: torch.sum(b, 1, out=a[:, 0]),
    "torch._foreach_add_": lambda a, b: torch._foreach_add_(
        [a[0], a[2]], [b[1], b[3]], alpha=2
    ),
    "torch._foreach_mul_": lambda a, _: torch._foreach_mul_([a[0], a[2]], 3),
    "torch._foreach_addcmul_": lambda a, b: torch._foreach_addcmul_(
        [a[0]], [b[1]], [b[2]], 2
    ),
    "torch._foreach_lerp_": lambda a, b: torch._foreach_lerp_([a[0]], [b[1]], 0.5),
}


def _on_a_copy(
    change: Callable[[torch.Tensor, torch.Tensor], Any],
) -> Callable[..., torch.Tensor]:
    """Return a function that applies the in-place operation `change` to a copy, and returns the copy."""

    def change_copy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        copy = a.clone()
        change(copy, b)
        return copy

    return change_copy


_MOVING: Operators = {
    "tril(1)": lambda a: a.tril(1),
    "triu(-2)": lambda a: a.triu(-2),
    "roll(2, 1)": lambda a: a.roll(2, 1),
    "roll((1, -2), (0, 1))": lambda a: a.roll((1, -2), (0, 1)),
    "flip(0, 1)": lambda a: a.flip(0, 1),
    "repeat(2, 3)": lambda a: a.repeat(2, 3),
    "repeat_interleave(2, 1)": lambda a: a.repeat_interleave(2, 1),
    "stack": lambda a: torch.stack([a, a + 1], 1),
    "cat of 130 tensors": lambda a: torch.cat([a + number for number in range(130)]),
    "stack of 40 tensors": lambda a: torch.stack(
        [a + number for number in range(40)], 1
    ),
    "cat of views": lambda a: torch.cat([a.T, a.T[::2]]),
    "cat with nothing": lambda a: torch.cat([a, a[:0]]),
    "split": lambda a: a.split([1, 3, 2], 1),
    "unfold": lambda a: a.unfold(1, 3, 2).contiguous(),
    "diag": lambda a: [a.diag(), a[0].diag(), a.diagonal(1).clone()],
    "movedim": lambda a: a.view(2, 2, 6).movedim(2, 0).contiguous(),
    "rows by negative numbers": lambda a: a[torch.tensor([-1, 0, -3], device=a.device)],
    "rows and columns": lambda a: a[
        torch.tensor([1, 3], device=a.device), torch.tensor([0, -1], device=a.device)
    ],
    "columns": lambda a: a[:, torch.tensor([2, 2, 0], device=a.device)],
    "with a mask": lambda a: a[a > 7],
    "rows with a mask": lambda a: a[a[:, 0] > 7],
    "take_along_dim": lambda a: a.take_along_dim(a.argsort(1), 1),
    "gather(1)": lambda a: a.gather(1, a[:, :3].long() % 6),
    "nonzero": lambda a: (a > 7).nonzero(),
    "pad": lambda a: functional.pad(a, (1, 2, 0, 1), value=-1),
    "pad, reflect": lambda a: functional.pad(a[None], (2, 1), mode="reflect"),
    "pad, replicate": lambda a: functional.pad(a[None], (2, 1), mode="replicate"),
    "pad, circular": lambda a: functional.pad(a[None], (2, 1), mode="circular"),
    "pad by less": lambda a: functional.pad(a, (-1, 0)),
    "one_hot": lambda a: functional.one_hot(a.long() % 5, 5),
    "embedding": lambda a: functional.embedding(a.long() % 4, a),
    "outer": lambda a: torch.outer(a[0], a[1]),
    "einsum": lambda a: torch.einsum("ij,kj->ik", a, a),
    "kron": lambda a: torch.kron(a[:2, :2], a[:2, :3]),
    "cross": lambda a: torch.linalg.cross(a[:, :3], a[:, 3:]),
    "interpolate": lambda a: functional.interpolate(
        a[None, None], scale_factor=2, mode="nearest"
    ),
    "interpolate, bilinear": lambda a: functional.interpolate(
        a[None, None], size=(7, 11), mode="bilinear", align_corners=False
    ),
    "pixel_shuffle": lambda a: functional.pixel_shuffle(a.view(1, 4, 2, 3), 2),
    "diff": lambda a: a.diff(dim=1),
    "trace": lambda a: a[:, :4].trace(),
    "arange": lambda a: torch.arange(3, 20, 4, device=a.device),
    "arange by 0.25": lambda a: torch.arange(0, 2, 0.25, device=a.device),
    "large arange": lambda a: torch.arange(2**24 + 1, 2**24 + 9, 2, device=a.device),
    "linspace": lambda a: torch.linspace(-1, 1, 9, device=a.device),
    "eye": lambda a: torch.eye(3, 5, device=a.device),
    "full": lambda a: torch.full((2, 3), 7, device=a.device),
    "rot90": lambda a: a.rot90(),
    "batches that broadcast": lambda a: a.reshape(2, 1, 2, 6) @ a.reshape(1, 2, 6, 2),
}


def _weighted_gradient(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function for the gradient of a weighted sum of results, so that gradients do not cancel."""

    def weighted_sum(x: torch.Tensor) -> torch.Tensor:
        result = function(x)
        # Weights begin at 1, because a weight of 0 would hide a gradient.
        weights = torch.arange(1, 1 + result.numel(), device=x.device)
        return (result * weights.view(result.shape)).sum()

    return lambda x: gradient(weighted_sum, x)


_ON_MANY_ROWS: Operators = {
    "add": lambda a: a + 1,
    "sum(1)": lambda a: a.sum(1),
    "amax(1)": lambda a: a.amax(1),
    "argmax(1)": lambda a: a.argmax(1),
    "cumsum(1)": lambda a: a.cumsum(1),
    "softmax(1)": lambda a: a.softmax(1),
    "layer_norm": lambda a: functional.layer_norm(a, a.shape[1:]),
    "sort(1)": lambda a: a.sort(1).values,
    "bmm": lambda a: torch.bmm(a[:, None], a[:, :, None]),
    "matmul": lambda a: a @ a[:3].T,
    "transposed": lambda a: a.T.contiguous(),
    "transposed sum(0)": lambda a: a.T.sum(0),
    "sum(0)": lambda a: (a - 1).sum(0),
    "index_select": lambda a: a.index_select(
        0, torch.arange(len(a) - 1, -1, -7, device=a.device)
    ),
    "gather": lambda a: a.gather(1, a.argmax(1, keepdim=True)),
    "cat": lambda a: torch.cat([a, a]),
    "where": lambda a: torch.where(a > 1, a, 0),
    "nonzero": lambda a: (a > 1).nonzero(),
}
_ON_A_VECTOR: Operators = {
    "unique": lambda a: torch.unique(a, return_inverse=True, return_counts=True),
    "masked_scatter": lambda a: a.masked_scatter(
        a == 1, torch.arange(len(a), device=a.device) + 0.5
    ),
    "masked_scatter, a mask for each column": lambda a: (
        a[:, None]
        .expand(-1, 2)
        .masked_scatter(torch.tensor([False, True], device=a.device), a * 10)
    ),
    "add": lambda a: a + a,
    "sum": lambda a: a.sum(),
    "sum(0), of columns": lambda a: a[:, None].expand(-1, 3).sum(0),
    "amax": lambda a: a.amax(),
    "argmin": lambda a: a.argmin(),
    "cumsum": lambda a: a.cumsum(0),
    "sort": lambda a: a.sort().values,
    "softmax": lambda a: a.softmax(0),
    "dot": lambda a: torch.dot(a, a),
    "mv": lambda a: a[None].expand(3, -1) @ a,
    "clone": lambda a: a.clone(),
    "flip": lambda a: a.flip(0),
    "layer_norm": lambda a: functional.layer_norm(a, a.shape),
    "half": lambda a: a.half() * 2,
    "gt": lambda a: a > 1,
}
_ON_A_SCALAR: Operators = {
    "sum": lambda a: a.sum(),
    "sum(0)": lambda a: a.sum(0),
    "mean": lambda a: a.mean(),
    "prod": lambda a: a.prod(),
    "max": lambda a: a.max(),
    "argmax": lambda a: a.argmax(),
    "cumsum(0)": lambda a: a.cumsum(0),
    "sort": lambda a: a.sort().values,
    "softmax(0)": lambda a: a.softmax(0),
    "add": lambda a: a + torch.ones(2, 2, device=a.device),
    "mul": lambda a: a * a,
    "clone": lambda a: a.clone(),
    "norm": lambda a: a.norm(),
    "expand": lambda a: a.expand(3).contiguous(),
    "item": lambda a: a.item(),
    "all": lambda a: a.all(),
    "fill_": lambda a: a.clone().fill_(4),
    "stack": lambda a: torch.stack([a, a]),
}
_ON_NO_ELEMENTS: Operators = {
    "sum(0)": lambda a: a.sum(0),
    "sum(1)": lambda a: a.sum(1),
    "prod": lambda a: a.prod(),
    "mean": lambda a: a.mean(),
    "all": lambda a: a.all(),
    "any": lambda a: a.any(),
    "norm": lambda a: a.norm(),
    "cumsum": lambda a: a.cumsum(1),
    "softmax": lambda a: a.softmax(1),
    "sort": lambda a: a.sort(1).values,
    "where": lambda a: torch.where(a > 0, a, 1.0),
    "relu": lambda a: a.relu(),
    "exp": lambda a: a.exp(),
    "clone": lambda a: a.clone(),
    "index": lambda a: a[torch.zeros(0, dtype=torch.int64, device=a.device)],
    "nonzero": lambda a: (a > 0).nonzero(),
    "mask": lambda a: a[a > 0],
    "half": lambda a: a.half(),
    "fill_": lambda a: a.clone().fill_(1),
    "layer_norm": lambda a: (
        functional.layer_norm(a, (a.shape[1],)) if a.shape[1] else a
    ),
    "repeat": lambda a: a.repeat(2, 2),
    "stack": lambda a: torch.stack([a, a]),
}


#: Functions whose second gradients are compared.
_TWICE_DIFFERENTIABLE: Operators = {
    "x * x * x": lambda x: x * x * x,
    "sin": torch.sin,
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "x @ x.T": lambda x: x @ x.T,
    "conv2d": lambda x: functional.conv2d(x[None, None], x[None, None, :3, :3]),
    "norm": lambda x: x.norm(dim=1),
}


def _second_gradient(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that differentiates the squared norm of the gradient of `function`."""

    def squared(point: torch.Tensor) -> torch.Tensor:
        result = function(point)
        weights = (
            torch.arange(1.0, 1 + result.numel(), device=point.device).view_as(result)
            / result.numel()
        )
        (first_gradient,) = torch.autograd.grad(
            (result * weights).sum(), point, create_graph=True
        )
        return (first_gradient * first_gradient).sum()

    return lambda at: gradient(squared, at)


def _spread_out(a: torch.Tensor) -> torch.Tensor:
    """Return the same numbers, with gaps between them in memory."""
    return torch.stack([a, a + 1], -1)[..., 0]


def _transposed(a: torch.Tensor) -> torch.Tensor:
    """Return the same numbers, stored by columns; of more dimensions, the first is stored last."""
    return a.movedim(0, -1).contiguous().movedim(-1, 0)


#: Functions that change the memory layout, by the words that describe the layout in a message.
_SPACINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "": torch.Tensor.contiguous,
    ", every second": _spread_out,
}
_MEMORY_ORDERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "": torch.Tensor.contiguous,
    ", transposed": _transposed,
}


class TestShapesAndTypes(BackendTestBase):
    """The same numbers in a different shape, type or memory layout must give the same result."""

    def test_broadcast(self, accelerator: Accelerator) -> None:
        """Rows, columns, scalars and missing dimensions are broadcast as in NumPy."""
        blocks = torch.arange(24.0).reshape(2, 3, 4) % 7 + 1
        for shape in ((4,), (1, 4), (3, 1), (2, 1, 4), (2, 1, 1), (1, 1, 1), ()):
            smaller = torch.arange(float(math.prod(shape))).reshape(shape) % 3 + 1
            assert_matches_cpu(
                accelerator,
                _BROADCAST,
                blocks,
                smaller,
                description=f"{(2, 3, 4)} and {shape}",
            )
        assert_matches_cpu(
            accelerator,
            {"outer sum": lambda a, b: a + b},
            blocks[0, :, :1],
            blocks[0, :1],
            description="(3, 1) and (1, 4)",
        )

    def test_types_promote(self, accelerator: Accelerator) -> None:
        """Operators on two types, and casts, give the type and values of torch's promotion rules."""
        integers = torch.tensor([3, 1, 4, 1, 5])
        assert_matches_cpu(
            accelerator,
            _MIXED_TYPES,
            integers,
            integers.flip(0) + 0.5,
            description="of two types",
        )
        assert_matches_cpu(
            accelerator, CASTS, torch.ones(1), description="to another type"
        )

    def test_signs(self, accelerator: Accelerator) -> None:
        """Division, remainders, powers, shifts and overflow of negative integers give the CPU's results."""
        a = torch.tensor([7, -7, 7, -7, 6, -6, 0, 1, -1, 5, -8, 8])
        b = torch.tensor([3, 3, -3, -3, 3, 3, 5, -7, 7, -5, 3, -3])
        for dtype in (torch.int64, torch.int32, torch.int8, torch.float32):
            assert_matches_cpu(
                accelerator, _SIGNED, a.to(dtype), b.to(dtype), description="with signs"
            )
        for dtype in (torch.int64, torch.int32, torch.int8):
            assert_matches_cpu(
                accelerator, _BITS, a.to(dtype), b.to(dtype), description="with signs"
            )
        unsigned = torch.tensor([250, 3, 128, 0, 255], dtype=torch.uint8)
        assert_matches_cpu(
            accelerator,
            {**_BITS, "a - b": lambda a, b: a - b, "-a": lambda a, _: -a},
            unsigned,
            unsigned.flip(0) + 1,
        )

    def test_zeros_and_infinities(self, accelerator: Accelerator) -> None:
        """Negative zero keeps its sign, and operations on infinities follow IEEE 754."""
        assert_matches_cpu(
            accelerator,
            _ON_ZEROS,
            torch.tensor([0.0, -0.0, 1.5, -1.5, 3.0, -3.0, -0.0, 0.0]),
            description="with -0.0",
        )
        inf = float("inf")
        rows = torch.tensor(
            [
                [inf, 1.0, -1.0, 0.5],
                [-inf, 2.0, 100.0, -100.0],
                [-inf, -inf, 3.0, 0.0],
                [1e4, -1e4, 1e-4, 0.0],
            ]
        )
        assert_matches_cpu(
            accelerator, _ON_INFINITIES, rows, description="with infinities"
        )
        finite = torch.tensor(
            [0.0, -0.0, 0.25, 0.5, -0.5, 1.0, -1.0, 1.5, -2.5, 3.0, 9.0, -9.0, 60.0]
        )
        assert_matches_cpu(accelerator, SMOOTH, finite, description="of both signs")
        assert_matches_cpu(accelerator, SMALL, finite, description="times 2**-25")
        numbers = torch.cat([finite, torch.tensor([inf, -inf, math.nan])])
        for spacing, layout in _SPACINGS.items():
            assert_matches_cpu(
                accelerator,
                ELEMENTARY,
                numbers,
                description=f"with NaN and infinities{spacing}",
                layout=layout,
            )
            for step in (1, 7):
                pair = numbers, numbers.roll(step)
                assert_matches_cpu(
                    accelerator,
                    PAIRS,
                    *pair,
                    description=f"with NaN and infinities{spacing}",
                    layout=layout,
                )
        operators = {
            name: operator
            for name, operator in {**ELEMENTARY, **SMOOTH}.items()
            if name != "float to float64"
        }
        for dtype in claimed_types(accelerator):
            values = finite[:-1]
            if (
                dtype is torch.float64
            ):  # the cast results are infinite or NaN only in this type
                values = torch.cat([values, numbers[-3:]])
            assert_matches_cpu(
                accelerator,
                operators,
                values.to(dtype),
                description="of both signs",
                reference_dtype=torch.float64,
            )

    def test_in_place(self, accelerator: Accelerator) -> None:
        """Kernels that write in place, into views or into `out` change only the memory of their target."""
        a = torch.arange(30.0).reshape(5, 6) % 7 + 1
        assert_matches_cpu(
            accelerator,
            {name: _on_a_copy(change) for name, change in _IN_PLACE.items()},
            a,
            a.flip(0).roll(1, 1),
        )
        assert_matches_cpu(
            accelerator,
            {**FOREACH, **OPTIMIZERS},
            a[:4],
            description="of several tensors",
        )

    def test_moved(self, accelerator: Accelerator) -> None:
        """Operators that move, repeat, select or create numbers do not change the numbers."""
        matrix = torch.arange(24.0).reshape(4, 6) % 13
        for order, layout in _MEMORY_ORDERS.items():
            assert_matches_cpu(
                accelerator,
                {**_MOVING, **INDEXED},
                matrix,
                description=f"4 rows of 6{order}",
                layout=layout,
            )

    def test_layers(self, accelerator: Accelerator) -> None:
        """Layers, losses, products and reductions give the CPU's results with each option."""
        images = (torch.arange(2 * 4 * 8 * 8).reshape(2, 4, 8, 8) * 7 % 11 - 5).float()
        kernels = (torch.arange(4 * 4 * 3 * 3).reshape(4, 4, 3, 3) * 5 % 7 - 3).float()
        rows = images.reshape(-1)[:24].view(4, 6)
        blocks = images.reshape(-1)[:180].view(3, 10, 6)
        for order, layout in _MEMORY_ORDERS.items():
            description = f"small whole numbers{order}"
            assert_matches_cpu(
                accelerator,
                {**LAYERS, **OPTIONS},
                images,
                kernels,
                description=description,
                layout=layout,
            )
            assert_matches_cpu(
                accelerator, PRODUCTS, rows, description=description, layout=layout
            )
            assert_matches_cpu(
                accelerator, REDUCED, blocks, description=description, layout=layout
            )

    def test_each_gradient(self, accelerator: Accelerator) -> None:
        """The gradient of each function agrees with the CPU's, weighted so that terms do not cancel."""
        matrix = torch.sin(torch.arange(30.0) * 1.7 + 0.25).reshape(5, 6) * 2.3
        assert_matches_cpu(
            accelerator,
            {
                f"gradient of {name}": _weighted_gradient(function)
                for name, function in DIFFERENTIABLE.items()
            },
            matrix,
        )

    def test_gradients_of_gradients(self, accelerator: Accelerator) -> None:
        """Second-order gradients, which gradient penalties use, agree with the CPU's."""
        matrix = torch.sin(torch.arange(30.0) * 1.7).reshape(5, 6) * 2.3
        second_gradients = {
            f"second gradient of {name}": _second_gradient(function)
            for name, function in _TWICE_DIFFERENTIABLE.items()
        }
        assert_matches_cpu(accelerator, second_gradients, matrix, required=True)

    def test_many_rows(self, accelerator: Accelerator) -> None:
        """Tensors with more rows than a grid has blocks are computed completely."""
        matrix = torch.arange(3.0 * _ROWS).reshape(_ROWS, 3) % 4
        assert_matches_cpu(
            accelerator, _ON_MANY_ROWS, matrix, description=f"{_ROWS} rows"
        )
        operators: Operators = {
            "add": lambda a: a + 1, "sum": lambda a: a.sum(), "cumsum": lambda a: a.cumsum(0)[::1021],
            "argmax": lambda a: a.argmax(), "copy": lambda a: a.clone(), "half": lambda a: a.half(),
        }  # fmt: skip
        vector = torch.zeros((1 << 20) + 3)
        vector[-2] = 2.0
        assert_matches_cpu(
            accelerator, operators, vector, description=f"{len(vector)} numbers"
        )

    def test_every_length(self, accelerator: Accelerator) -> None:
        """Vectors with lengths around a block's width, scalars and empty tensors give the CPU's results."""
        for length in _VECTOR_LENGTHS:
            vector = torch.arange(float(length)) * 5 % 3
            assert_matches_cpu(
                accelerator, _ON_A_VECTOR, vector, description=f"{length} numbers"
            )
        assert_matches_cpu(
            accelerator, _ON_A_SCALAR, torch.tensor(2.5), description="of no dimension"
        )
        for shape in ((0, 3), (3, 0), (0, 0)):
            assert_matches_cpu(
                accelerator,
                _ON_NO_ELEMENTS,
                torch.ones(shape),
                description=f"of shape {shape}",
            )
