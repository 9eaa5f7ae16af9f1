"""Operators with each option that a kernel may ignore, and with numbers for which the option matters.

Each operator is run on the device and on the CPU. A kernel that is correct for the usual options and numbers
may be incorrect here: for example, a max pool may pad with zeros, or a product may keep the NaN that `beta=0`
drops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from accel_testing.conformance.compute.comparison import Operators

__all__ = [
    "CASTS",
    "ELEMENTARY",
    "FOREACH",
    "INDEXED",
    "OPTIMIZERS",
    "PAIRS",
    "PRODUCTS",
    "REDUCED",
    "SMALL",
    "SMOOTH",
    "tensor_on",
]


def tensor_on(
    like: torch.Tensor, values: float | Sequence[Any], dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return a tensor of `values` on the device of `like`."""
    return torch.tensor(values, device=like.device, dtype=dtype)


# --- Functions of one number, or of two numbers --------------------------------------------------------

#: Functions that are defined for every number, including NaN and infinity.
ELEMENTARY: Operators = {
    **{
        name: getattr(torch, name)
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan", "tanh",
            "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "square", "reciprocal",
            "floor", "ceil", "trunc", "round", "erf", "erfc", "sigmoid", "abs", "neg", "sign", "relu",
            "isnan", "isinf", "isfinite", "isposinf", "isneginf", "logical_not", "deg2rad", "positive",
        )
    },
    "bool": lambda a: a.bool(),
    "clamp(min=1)": lambda a: a.clamp(min=1),
    "clamp(max=1)": lambda a: a.clamp(max=1),
    "clamp by a tensor": lambda a: a.clamp(a.flip(0), a.new_full((), 2.0)),
    "hardtanh": lambda a: functional.hardtanh(a, -0.5, 2.0),
    "leaky_relu(0.25)": lambda a: functional.leaky_relu(a, 0.25),
    "nan_to_num(1, 2, 3)": lambda a: a.nan_to_num(1.0, 2.0, 3.0),
    "float to float64": lambda a: a.double(),
    "round(decimals=1)": lambda a: a.nan_to_num(0, 0, 0).round(decimals=1),
}  # fmt: skip
#: Functions that are defined for finite numbers.
SMOOTH: Operators = {
    **{
        name: getattr(functional, name)
        for name in (
            "celu", "elu", "gelu", "hardshrink", "hardsigmoid", "hardswish", "logsigmoid", "mish", "relu6",
            "selu", "silu", "softplus", "softshrink", "softsign", "tanhshrink",
        )
    },
    "gelu, tanh": partial(functional.gelu, approximate="tanh"),
    "elu(2)": partial(functional.elu, alpha=2.0),
    "celu(2)": partial(functional.celu, alpha=2.0),
    "softplus(2, 3)": partial(functional.softplus, beta=2.0, threshold=3.0),
    "threshold(1, 7)": partial(functional.threshold, threshold=1.0, value=7.0),
    "hardshrink(2)": partial(functional.hardshrink, lambd=2.0),
    "softshrink(1)": partial(functional.softshrink, lambd=1.0),
    "binary_cross_entropy_with_logits": lambda a: functional.binary_cross_entropy_with_logits(
        a * 4, (a > 0.75).to(a.dtype), reduction="none"
    ),
    "frac": torch.frac,
    "sgn": torch.sgn,
    "sinc": torch.sinc,
    "erfinv": lambda a: (a / 128).erfinv(),
    "logit": lambda a: (a / 256 + 0.5).logit(),
    "logit(eps)": lambda a: (a / 64 + 0.5).logit(0.125),
    "lgamma": lambda a: (a.abs() + 0.75).lgamma(),
    "digamma": lambda a: (a.abs() + 0.75).digamma(),
    "a ** 0": lambda a: a**0,
    "a ** -1": lambda a: a**-1.0,
    "a ** 0.5": lambda a: a.abs() ** 0.5,
    "0.5 ** a": lambda a: 0.5 ** a.clamp(-9, 9),
    "a // 0.3": lambda a: a // 0.3125,
    "a % -0.7": lambda a: a % -0.6875,
    "copysign": lambda a: torch.copysign(a, -a.flip(0)),
    "ldexp": lambda a: torch.ldexp(a, tensor_on(a, [3])),
    "cumsum backwards": lambda a: a.flip(0).cumsum(0).flip(0),
}  # fmt: skip
#: Functions of numbers so small that adding 1 gives 1.
SMALL: Operators = {
    name: partial(lambda a, work: work(a * 2**-25) * 2**25, work=getattr(torch, name))
    for name in ("log1p", "expm1", "sinh", "asinh", "tanh", "atanh", "sin", "erf")
}
#: Functions of two rows with NaN, infinities and zeros of both signs.
PAIRS: Operators = {
    **{
        name: getattr(torch, name)
        for name in (
            "eq", "ne", "lt", "le", "gt", "ge", "fmin", "fmax", "maximum", "minimum", "hypot", "logical_and",
            "logical_or", "logical_xor", "logaddexp", "copysign", "atan2", "xlogy", "add", "sub", "mul",
            "div",
        )
    },
    "add(alpha=3)": lambda a, b: torch.add(a, b, alpha=3),
    "sub(alpha=3)": lambda a, b: torch.sub(a, b, alpha=3),
    "rsub(alpha=3)": lambda a, b: torch.rsub(a, b, alpha=3),
    "heaviside": lambda a, b: torch.heaviside(a.nan_to_num(), b),
    "isclose": torch.isclose,
    "isclose(equal_nan)": lambda a, b: torch.isclose(a, b.roll(1), equal_nan=True),
    "where": lambda a, b: torch.where(a > b, a, b),
    "where(a, 2)": lambda a, b: torch.where(a > b, a, 2),
    "equal": lambda a, b: [torch.equal(a, b), torch.equal(b, b.clone()), torch.equal(a[:2], a[:2].clone())],
    "lerp by numbers": lambda a, b: torch.lerp(a[:4], b[:4], b[:4]),
    "addcdiv(value=2)": lambda a, b: torch.addcdiv(a, a, b + 7, value=2),
    "masked_fill with a number of no dimension": lambda a, b: a.masked_fill(a > b, b[0]),
}  # fmt: skip


# --- Casts ---------------------------------------------------------------------------------------------

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_FLOATING = (torch.float32, torch.float16, torch.bfloat16)


def _make_cast(
    source: torch.dtype, target: torch.dtype
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that casts numbers from `source` to `target` for which the cast is defined."""
    if source.is_floating_point:
        values = _castable_fractions(target)
    else:
        values = _castable_integers(source)
    # Short floating-point types are compared exactly, after conversion to float32.
    exact = torch.float32 if target in (torch.float16, torch.bfloat16) else target
    return lambda a: tensor_on(a, values, source).to(target).to(exact)


def _castable_fractions(target: torch.dtype) -> list[float]:
    """Return fractions; NaN, infinities and negative numbers only if C++ defines their cast to `target`."""
    values = [0.0, -0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.75, 100.5]
    values += [1.00390625, 1.01171875, 0.3, 2.7, 99.9]
    if target is not torch.uint8:
        values += [-0.25, -0.5, -0.75, -1.5, -2.75]
    if target not in _INTEGERS:
        values += [float("nan"), float("inf"), -float("inf")]
    return values


def _castable_integers(source: torch.dtype) -> list[float]:
    """Return those integers at both ends of the 8-bit range that `source` can represent."""
    if source is torch.bool:
        return [0, 1]
    values: list[float] = [0, 1, 2, 3, 64, 127]
    if source is not torch.int8:
        values += [128, 200, 255]
    if source is not torch.uint8:
        values += [-1, -2, -100]
    return values


def _dtype_name(dtype: torch.dtype) -> str:
    """Return the type's name without `torch.`."""
    return str(dtype).removeprefix("torch.")


_ALL = (*_FLOATING, *_INTEGERS, torch.bool)
CASTS: Operators = {
    **{
        f"{_dtype_name(source)} to {_dtype_name(target)}": _make_cast(source, target)
        for source in _ALL
        for target in _ALL
        if source is not target
    },
    "large int64 to float32": lambda a: tensor_on(
        a, [2**24 + 1, 2**24 + 3, -(2**24) - 1]
    ).float(),
    "large int64 to float16": lambda a: tensor_on(a, [65504, 70000, -70000]).half(),
    "large float32 to float16": lambda a: tensor_on(
        a, [65504.0, 65519.0, 65521.0, 1e6, -1e6]
    ).half(),
    "int64 beyond int32 to int32": lambda a: tensor_on(
        a, [2**32 + 5, -(2**33) + 7]
    ).int(),
    "copy_ of float32 into bool": lambda a: tensor_on(a, [True, True, False]).copy_(
        tensor_on(a, [0.5, 0.0, -0.25])
    ),
    "copy_ of float32 into int32": lambda a: tensor_on(a, [1, 1], torch.int32).copy_(
        tensor_on(a, [2.75, -2.75])
    ),
    "cast of a transposed tensor": lambda a: tensor_on(
        a, [[0.5, 1.5], [2.5, 0.0]]
    ).T.to(torch.int32),
    "full_like(dtype)": lambda a: torch.full_like(a, 2.75, dtype=torch.int32),
    "sum(dtype=int32) of bool": lambda a: tensor_on(a, [True, True, False]).sum(
        dtype=torch.int32
    ),
    "any and all of fractions": lambda a: [
        tensor_on(a, [0.0, 0.25]).any(),
        tensor_on(a, [0.25, 0.5]).all(),
    ],
    "any and all of NaN": lambda a: [
        tensor_on(a, [0.0, float("nan")]).any(),
        tensor_on(a, [float("nan")]).all(),
    ],
    "logical_not of fractions": lambda a: tensor_on(
        a, [0.25, 0.0, -0.5, 2.0]
    ).logical_not(),
    "nonzero of fractions": lambda a: tensor_on(
        a, [0.25, 0.0, -0.5, float("nan")]
    ).nonzero(),
    "count_nonzero of fractions": lambda a: tensor_on(
        a, [0.25, 0.0, -0.5, float("nan")]
    ).count_nonzero(),
}


# --- Indices --------------------------------------------------------------------------------------------


def _scatter_reduce(
    reduce: str, *, include_self: bool
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that reduces numbers into six elements with `scatter_reduce`."""

    def scatter(a: torch.Tensor) -> torch.Tensor:
        index = tensor_on(a, [0, 2, 0, 5])
        start = torch.full((6,), 3.0, device=a.device)
        return start.scatter_reduce(
            0, index, a[1, :4] - 2, reduce, include_self=include_self
        )

    return scatter


def _copy_changed_by(
    change: Callable[[torch.Tensor], object],
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function that applies the in-place operation `change` to a copy, and returns the copy."""

    def change_copy(a: torch.Tensor) -> torch.Tensor:
        copy = a.clone()
        change(copy)
        return copy

    return change_copy


#: Functions of four rows of six distinct numbers.
INDEXED: Operators = {
    "masked_select": lambda a: a.masked_select(a % 3 == 1),
    "slice_scatter": lambda a: a.slice_scatter(a[:, :2] * 10, 1, 1, 5, 2),
    "select_scatter": lambda a: a.select_scatter(a[:, 0] * 10, 1, -2),
    "diagonal_scatter": lambda a: a.diagonal_scatter(a[0, :4] * 10, 1),
    "index_put": lambda a: a.index_put(
        (tensor_on(a, [0, 3]), tensor_on(a, [-1, 2])), tensor_on(a, [70.0, 80.0])
    ),
    "index_put of one number": lambda a: a.index_put((tensor_on(a, [0, 3]),), tensor_on(a, 70.0)),
    "index_put, a mask": lambda a: a.index_put((a > 7,), tensor_on(a, -1.0)),
    "index_put, accumulated in two dimensions": lambda a: a.index_put(
        (tensor_on(a, [0, 0, 1]), tensor_on(a, [2, 2, 2])), tensor_on(a, [1.0, 10.0, 100.0]), accumulate=True
    ),
    "index_add(alpha=2)": lambda a: a.index_add(1, tensor_on(a, [0, 5, 0]), a[:, :3], alpha=2),
    "index_copy(1)": lambda a: a.index_copy(1, tensor_on(a, [4, 0]), a[:, :2] * 10),
    "index_fill(1)": lambda a: a.index_fill(1, tensor_on(a, [5, 2]), 9),
    "index_select(1)": lambda a: a.index_select(1, tensor_on(a, [5, 0, 5])),
    **{
        f"scatter_reduce, {reduce}, include_self={include_self}": _scatter_reduce(
            reduce, include_self=include_self
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include_self in (True, False)
    },
    "scatter of a number": lambda a: a.scatter(1, tensor_on(a, [[0], [5], [2], [2]]), 9.0),
    "scatter(0)": lambda a: a.scatter(0, tensor_on(a, [[3, 0, 1, 2, 3, 0]]), a[1:] * 10),
    "scatter, reduce": lambda a: a.scatter(
        1, tensor_on(a, [[0], [5], [2], [2]]), a[:, :1] + 2, reduce="multiply"
    ),
    "scatter_add(1)": lambda a: a.scatter_add(1, tensor_on(a, [[0, 0, 5]] * 4), a[:, :3]),
    "gather(0)": lambda a: a.gather(0, tensor_on(a, [[3, 0, 1, 2, 3, 0], [0, 1, 0, 1, 0, 1]])),
    "take": lambda a: a.take(tensor_on(a, [[0, 23], [-1, 7]])),
    "put_": _copy_changed_by(lambda a: a.put_(tensor_on(a, [0, 23, 7]), tensor_on(a, [90.0, 91.0, 92.0]))),
    "transposed, take": lambda a: a.T.take(tensor_on(a, [1, 5, 22])),
    "narrow": lambda a: a.narrow(1, 2, 3).clone(),
    "select of a negative place": lambda a: a.select(1, -2).clone(),
    "as_strided": lambda a: a.as_strided((3, 3), (1, 6), 2).clone(),
    "as_strided, written": _copy_changed_by(lambda a: a.as_strided((2, 2), (7, 2), 3).fill_(-1)),
    "repeat_interleave by a tensor": lambda a: a.repeat_interleave(tensor_on(a, [2, 0, 1, 3]), 0),
    "roll of all": lambda a: a.roll(-5),
    "rot90(-1)": lambda a: a.rot90(-1),
    "tile": lambda a: a.tile((2, 1, 2)),
    "chunk": lambda a: [part.clone() for part in a.chunk(4, 1)],
    "hstack": lambda a: torch.hstack([a, a[:, :1]]),
    "cat along the last": lambda a: torch.cat([a, a[:, :0], a[:, 2:4]], -1),
    "meshgrid": lambda a: torch.meshgrid(a[0], a[1, :2], indexing="xy"),
    "tril_indices": lambda a: torch.tril_indices(3, 4, 1, device=a.device),
    "triu_indices": lambda a: torch.triu_indices(3, 4, -1, device=a.device),
    "tril of a batch": lambda a: a.view(2, 2, 6).tril(-1),
    "nonzero as places": lambda a: (a % 5 == 0).nonzero(as_tuple=True),
    "fill_diagonal_": _copy_changed_by(lambda a: a.fill_diagonal_(-1)),
    "resize_ keeps what is there": lambda a: a.clone().resize_(2, 3),
    "expand, then added": lambda a: a[:, :1].expand(4, 6) + a,
    "unfold(0)": lambda a: a.unfold(0, 2, 1).clone(),
    "searchsorted": lambda a: [
        torch.searchsorted(tensor_on(a, [1.0, 3.0, 3.0, 7.0]), a),
        torch.searchsorted(tensor_on(a, [1.0, 3.0, 3.0, 7.0]), a, right=True),
        torch.searchsorted(tensor_on(a, [1.0, 3.0, 3.0, 7.0]), a, side="right"),
    ],
    "bucketize": lambda a: torch.bucketize(a, tensor_on(a, [1.0, 3.0, 7.0])),
    "unique_consecutive": lambda a: torch.unique_consecutive(a[0] // 2, return_counts=True),
    "isin": lambda a: torch.isin(a, tensor_on(a, [1.0, 7.0])),
    "embedding, one row twice": lambda a: functional.embedding(tensor_on(a, [[3, 0], [3, 1]]), a),
    "embedding_bag, sum": lambda a: _embedding_bag(a, "sum"),
    "embedding_bag, mean": lambda a: _embedding_bag(a, "mean"),
    "embedding_bag, max": lambda a: _embedding_bag(-a - 1, "max"),
    "embedding_bag, weighed": lambda a: functional.embedding_bag(
        tensor_on(a, [0, 3, 1, 1]), a, tensor_on(a, [0, 2]), mode="sum",
        per_sample_weights=tensor_on(a, [1.0, 2.0, 3.0, -1.0]),
    ),
    "index_select by every second index": lambda a: a.index_select(1, tensor_on(a, [5, 0, 2, 0, 1, 0])[::2]),
    "indexed by every second index": lambda a: a[tensor_on(a, [3, 0, 2, 0])[::2]],
    "gather by every second index": lambda a: a.gather(1, tensor_on(a, [[5, 0, 2, 1]] * 4)[:, ::2]),
    "clone of an expanded tensor, written": lambda a: _copy_changed_by(
        lambda copy: copy[0].fill_(9)
    )(a[:1].expand(4, 6)),
    "contiguous of an expanded tensor, written": lambda a: a[:, :1].expand(4, 6).contiguous().cumsum_(1),
    "cdist of near points far from the origin": lambda a: torch.cdist(a / 64 + 1024, (a + 1) / 64 + 1024),
    "long arange by 0.3": lambda a: (
        torch.arange(0, 60000, 0.3, device=a.device) - torch.arange(200000, device=a.device) * 0.3
    ).abs() > 0.1,
    "linspace of one": lambda a: torch.linspace(2, 3, 1, device=a.device),
    "linspace backwards": lambda a: torch.linspace(3, -1, 4, device=a.device),
    "logspace": lambda a: torch.logspace(0, 3, 4, base=2, device=a.device),
    "arange backwards": lambda a: torch.arange(5, -4, -3, device=a.device),
    "full of true": lambda a: torch.full((2,), True, device=a.device),
    "zeros_like of a transposed tensor": lambda a: torch.zeros_like(a.T) + a.T,
}  # fmt: skip


def _embedding_bag(a: torch.Tensor, mode: str) -> torch.Tensor:
    """Return the embeddings of three bags of rows, of which the second is empty."""
    return functional.embedding_bag(
        tensor_on(a, [0, 3, 1, 1, 2]), a, tensor_on(a, [0, 2, 2]), mode=mode
    )


# --- Products and reductions ---------------------------------------------------------------------------

_NAN = float("nan")


def _nans(*shape: int, a: torch.Tensor) -> torch.Tensor:
    """Return a tensor of NaN on the device of `a`."""
    return torch.full(shape, _NAN, device=a.device)


#: Functions of four rows of six small integers.
PRODUCTS: Operators = {
    # torch documents for each operator: "nan and inf in it will not be propagated".
    "addmm(beta=0) to NaN": lambda a: torch.addmm(_nans(4, 4, a=a), a, a.T, beta=0),
    "addmv(beta=0) to NaN": lambda a: torch.addmv(_nans(4, a=a), a, a[0], beta=0),
    "addr(beta=0) to NaN": lambda a: torch.addr(_nans(4, 6, a=a), a[:, 0], a[0], beta=0),
    "baddbmm(beta=0) to NaN": lambda a: torch.baddbmm(_nans(2, 2, 2, a=a), *_two_batches(a), beta=0),
    "addbmm(beta=0) to NaN": lambda a: torch.addbmm(_nans(2, 2, a=a), *_two_batches(a), beta=0),
    "addmm_(beta=0) in place": lambda a: _nans(4, 4, a=a).addmm_(a, a.T, beta=0, alpha=2),
    "addmm(beta, alpha)": lambda a: torch.addmm(a[:, :4], a, a.T, beta=2, alpha=-3),
    "addmm of a row": lambda a: torch.addmm(a[0, :4], a, a.T, beta=3),
    "addmm of a column": lambda a: torch.addmm(a[:, :1], a, a.T),
    "addmv(beta, alpha)": lambda a: torch.addmv(a[:, 0], a, a[1], beta=2, alpha=-3),
    "addr(beta, alpha)": lambda a: torch.addr(a, a[:, 0], a[1], beta=2, alpha=-3),
    "baddbmm(beta, alpha)": lambda a: torch.baddbmm(
        a.reshape(6, 2, 2)[:2], *_two_batches(a), beta=2, alpha=-3
    ),
    "addbmm(beta, alpha)": lambda a: torch.addbmm(a[:2, :2], *_two_batches(a), beta=2, alpha=-3),
    "bmm of transposed": lambda a: torch.bmm(*(matrix.mT for matrix in reversed(_two_batches(a)))),
    "matmul, a vector first": lambda a: a[:, 0] @ a,
    "matmul, a vector last": lambda a: a @ a[0],
    "matmul of vectors": lambda a: a[0] @ a[1],
    "matmul, a batch and a vector": lambda a: a.view(2, 2, 6) @ a[0],
    "matmul, a batch and a matrix": lambda a: a.view(2, 2, 6) @ a.T,
    "matmul of nothing": lambda a: a[:, :0] @ a[:0],
    "mm of strided": lambda a: a[:, ::2] @ a.T[::2],
    "mm of transposed": lambda a: a.T @ a,
    "dot": lambda a: torch.dot(a[0], a[1]),
    "inner": lambda a: torch.inner(a, a),
    "tensordot": lambda a: torch.tensordot(a.view(2, 2, 6), a, dims=([2], [1])),
    "einsum, a diagonal": lambda a: torch.einsum("ii->i", a[:, :4]),
    "einsum of a batch": lambda a: torch.einsum("bij,bkj->bik", a.view(2, 2, 6), a.view(2, 2, 6)),
    "linear of three dimensions": lambda a: functional.linear(a.view(2, 2, 6), a, a[:, 0]),
    "bilinear": lambda a: functional.bilinear(a[:, :2], a[:, :3], a.view(4, 2, 3), a[0, :4]),
    "matrix_power": lambda a: torch.linalg.matrix_power(a[:, :4], 3),
    "int32 matmul": lambda a: a.int() @ a.int().T,
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.T + 50 * torch.eye(4, device=a.device)),
    "solve": lambda a: torch.linalg.solve(a[:, :4] + 30 * torch.eye(4, device=a.device), a),
    "inv": lambda a: torch.linalg.inv(a[:, :4] + 30 * torch.eye(4, device=a.device)),
    "det": lambda a: torch.linalg.det(a[:3, :3] / 4 + torch.eye(3, device=a.device)),
    **{
        f"solve_triangular, upper={upper}, unitriangular={unit}": partial(
            lambda a, upper, unit: torch.linalg.solve_triangular(
                a[:, :4] / 8 + 2 * torch.eye(4, device=a.device), a, upper=upper, unitriangular=unit
            ),
            upper=upper,
            unit=unit,
        )
        for upper in (True, False)
        for unit in (True, False)
    },
    "fft": lambda a: torch.view_as_real(torch.fft.fft(a)),
    "rfft of an odd length": lambda a: torch.view_as_real(torch.fft.rfft(a[:, :5], norm="ortho")),
    "irfft": lambda a: torch.fft.irfft(torch.fft.rfft(a), n=6),
    "fft2": lambda a: torch.view_as_real(torch.fft.fft2(a, norm="forward")),
}  # fmt: skip


def _two_batches(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of two 2 × 6 matrices, and a batch of two 6 × 2 matrices."""
    return a.view(2, 2, 6), a.flip(0).reshape(2, 6, 2)


_UNARY = (
    "abs", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "neg", "reciprocal",
    "round", "sigmoid", "sign", "sin", "sinh", "sqrt", "rsqrt", "log", "log2", "log10", "log1p", "tan",
    "tanh", "trunc",
)  # fmt: skip


def _tensors_of_many_shapes(a: torch.Tensor) -> list[torch.Tensor]:
    """Return tensors of several shapes, one of them empty, like the parameters of a model."""
    return [a.clone(), a[:0].clone(), a[1:, :2] * 0.5, a[0, 0].clone(), a.T.clone()]


def _foreach(
    name: str, *more: Any, inplace: bool = False, **options: Any
) -> Callable[[torch.Tensor], Any]:
    """Return a function that calls `torch._foreach_NAME` with several tensors and the arguments `more`.

    A function in `more` is replaced by its result for the tensors. If `inplace` is true, the result is the
    list of changed tensors.
    """

    def call(a: torch.Tensor) -> Any:
        tensors = _tensors_of_many_shapes(a)
        others = [other(tensors) if callable(other) else other for other in more]
        result = getattr(torch, f"_foreach_{name}")(tensors, *others, **options)
        return tensors if inplace else result

    return call


def _other_tensors(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors of the same shapes as `tensors`, but with different numbers."""
    return [tensor * 2 + 1 for tensor in tensors]


_NUMBERS = [1.0, 2.0, 3.0, 4.0, 5.0]
#: Functions that torch's optimizers use, of four rows of six small integers.
FOREACH: Operators = {
    **{f"_foreach_{name}": _foreach(name) for name in _UNARY},
    **{f"_foreach_{name}_": _foreach(f"{name}_", inplace=True) for name in ("sqrt", "neg", "abs", "zero")},
    **{
        f"_foreach_{name}, {description}": _foreach(name, other)
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_max", "clamp_min")
        for description, other in (("a list", _other_tensors), ("a number", 0.5), ("numbers", _NUMBERS))
    },
    **{
        f"_foreach_{name}_, {description}": _foreach(f"{name}_", other, inplace=True)
        for name in ("add", "sub", "mul", "div", "maximum", "minimum")
        for description, other in (("a list", _other_tensors), ("a number", 0.5), ("numbers", _NUMBERS))
    },
    "_foreach_add, alpha": _foreach("add", _other_tensors, alpha=3),
    "_foreach_sub_, alpha": _foreach("sub_", _other_tensors, inplace=True, alpha=3),
    "_foreach_pow": _foreach("pow", 3.0),
    "_foreach_pow, numbers": _foreach("pow", [1.0, 2.0, 3.0, 0.0, 2.0]),
    "_foreach_lerp": _foreach("lerp", _other_tensors, 0.25),
    "_foreach_lerp_, lists": _foreach("lerp_", _other_tensors, _other_tensors, inplace=True),
    **{
        f"_foreach_{name}, {description}": _foreach(name, _other_tensors, _other_tensors, other)
        for name in ("addcmul", "addcdiv")
        for description, other in (("a number", 0.5), ("numbers", _NUMBERS))
    },
    **{f"_foreach_norm({order})": _foreach("norm", order) for order in (1, 2)},
    "_foreach_copy_": _foreach("copy_", _other_tensors, inplace=True),
    "clip_grad_norm": lambda a: torch.nn.utils.get_total_norm([a, a[1:, :2]], 2.0),
}  # fmt: skip

#: Functions of three-dimensional tensors of integers, including zero and negative integers; the rows are
#: ordered differently.
REDUCED: Operators = {
    "sum((0, 2), keepdim)": lambda a: a.sum((0, 2), keepdim=True),
    "sum(-1)": lambda a: a.sum(-1),
    "mean((0, 1))": lambda a: a.mean((0, 1)),
    "amax((0, 2))": lambda a: a.amax((0, 2)),
    "amin((1,), keepdim)": lambda a: a.amin((1,), keepdim=True),
    "aminmax": lambda a: [*a.aminmax(), *a.aminmax(dim=1)],
    "prod(1)": lambda a: a.prod(1),
    "any(1)": lambda a: (a > 3).any(1),
    "all(0)": lambda a: (a > -3).all(0),
    "any((0, 2))": lambda a: (a > 4).any((0, 2)),
    "argmax(0)": lambda a: a.argmax(0),
    "argmin(2, keepdim)": lambda a: a.argmin(2, keepdim=True),
    "max(0), min(1)": lambda a: [a.max(0).values, a.min(1).values, a.max(), a.min()],
    "var, std": lambda a: [a.var(1), a.std((0, 2)), a.var((0, 1), correction=0), a.std(correction=0)],
    "of a large mean": lambda a: [(a + 4096).var(1), (a + 4096).std((0, 2)), torch.var_mean(a + 4096)[0]],
    "var_mean": lambda a: torch.var_mean(a, (1, 2), correction=2),
    "norms": lambda a: [a.norm(p, 2) for p in (0, 1, 2, 3, float("inf"), -float("inf"))],
    "vector_norm of all": lambda a: [torch.linalg.vector_norm(a), torch.linalg.vector_norm(a, 1, (0, 2))],
    "logsumexp of two dimensions": lambda a: a.logsumexp((0, 2), keepdim=True),
    "count_nonzero(1)": lambda a: a.count_nonzero(1),
    "nansum, nanmean": lambda a: [(a / a).nansum(1), (a / a).nanmean(1)],
    "median": lambda a: [a.median(), a.median(1).values, (a / a * a).nanmedian(2).values],
    "quantile": lambda a: a.quantile(tensor_on(a, [0.0, 0.25, 1.0]), dim=2),
    "kthvalue": lambda a: a.kthvalue(2, 2).values,
    "topk, the smallest": lambda a: a.topk(3, 1, largest=False).values,
    "topk, not the last dimension": lambda a: a.topk(2, 0).values,
    "sort, descending": lambda a: a.sort(1, descending=True).values,
    "argsort, stable": lambda a: a.argsort(dim=2, stable=True),
    "argsort(0), stable, descending": lambda a: a.argsort(dim=0, descending=True, stable=True),
    "cumsum(0)": lambda a: a.cumsum(0),
    "cumprod(2)": lambda a: (a / 4).cumprod(2),
    "cummax, cummin": lambda a: [a.cummax(2).values, a.cummin(0).values],
    "logcumsumexp": lambda a: a.logcumsumexp(1),
    "softmax(0), softmax(1)": lambda a: [a.softmax(0), a.softmax(1), a.log_softmax(0)],
    "softmax(dtype) of float16": lambda a: a.half().softmax(1, torch.float32),
    "softmin": lambda a: functional.softmin(a, 2),
    "histc": lambda a: a.histc(5, -5, 5),
    "bincount, weighed": lambda a: (a[0, 0] + 5).long().bincount(a[0, 1], minlength=12),
    "cov": lambda a: a[0].cov(),
    "trapezoid": lambda a: torch.trapezoid(a, dx=0.5, dim=1),
    "diff(n=2)": lambda a: a.diff(2, 0),
    "dist": lambda a: torch.dist(a[0], a[1], 3),
    "cdist": lambda a: [torch.cdist(a[0], a[1], p) for p in (0.0, 1.0, 2.0, float("inf"))],
    "renorm": lambda a: a.renorm(2, 0, 3.0),
    "sum of a transposed tensor": lambda a: a.permute(2, 0, 1).sum((0, 1)),
    "sum of an expanded tensor": lambda a: a[:1].expand(3, -1, -1).sum(0),
    "amax of every second": lambda a: a[:, ::2, ::3].amax((1, 2)),
    "sum of float16": lambda a: a.half().sum(1),
    "mean(dtype=float64)": lambda a: a.mean(1, dtype=torch.float64),
}  # fmt: skip


# --- Optimizers ----------------------------------------------------------------------------------------

#: torch's optimizers, with the options that use an additional kernel.
_OPTIMIZERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.25, "betas": (0.5, 0.75)}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.5, "nesterov": True, "maximize": True}),
    ("SGD", {"momentum": 0.5, "dampening": 0.25}),
    ("Adam", {"weight_decay": 0.25, "eps": 0.1}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("Adamax", {}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {"rho": 0.5}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Rprop", {}),
    ("ASGD", {}),
)
#: Optimizers with one fused kernel for a whole step, to which a `GradScaler` reports infinite gradients.
_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")


def _train(
    name: str, options: dict[str, Any], *, foreach: bool
) -> Callable[[torch.Tensor], Any]:
    """Return a function that trains two weights for three steps with fixed gradients, and returns both."""

    def train(a: torch.Tensor) -> list[torch.Tensor]:
        weights = [torch.nn.Parameter(part.clone()) for part in (a / 8, a[0] / 4)]
        optimizer = getattr(torch.optim, name)(
            weights, lr=0.125, foreach=foreach, **options
        )
        for step in range(3):
            for weight in weights:  # these gradients are not computed by a kernel
                numbers = a.reshape(-1)[: weight.numel()] * (step + 1) / 4
                weight.grad = numbers.view(weight.shape)
            optimizer.step()
        return [weight.detach() for weight in weights]

    return train


def _keywords(**options: Any) -> str:
    """Return options as written in a call, such as `"lr=0.1, foreach=True"`."""
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _fused_step(name: str, found_inf: float) -> Callable[[torch.Tensor], Any]:
    """Return a function that runs one step of a fused optimizer with scaled gradients."""

    def step(a: torch.Tensor) -> torch.Tensor:
        weight = torch.nn.Parameter(a / 8)
        optimizer = getattr(torch.optim, name)([weight], lr=0.125, fused=True)
        optimizer.grad_scale = tensor_on(a, 4.0)
        optimizer.found_inf = tensor_on(a, found_inf)
        weight.grad = a.clone()
        optimizer.step()
        return weight.detach()

    return step


#: Functions of four rows of six numbers, which return the weights after three steps.
OPTIMIZERS: Operators = {
    f"{name}({_keywords(**options, foreach=foreach)})": _train(
        name, options, foreach=foreach
    )
    for name, options in _OPTIMIZERS
    for foreach in (True, False)
} | {
    f"{name}(fused=True), found_inf={found_inf}": _fused_step(name, found_inf)
    for name in _FUSED
    for found_inf in (0.0, 1.0)
}
