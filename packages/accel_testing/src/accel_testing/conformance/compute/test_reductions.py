"""Sums, extremes and places: in which width, with NaN, with equals, and with indices that come twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from accel_core import Accelerator
from accel_testing.conformance.claims import not_claimed
from accel_testing.conformance.compute.compared import (
    Operators,
    claimed_types,
    gradient,
    hold,
)
from accel_testing.conformance.subject import Subject

__all__ = ["TestReductions"]

_NAN = float("nan")
#: Neither a multiple of a vector, nor of a block.
_LONG = 10_007
#: So many ones that a sum in float16 or bfloat16 stands still, or that squares leave float16.
_MANY = 4099


def _along(
    name: str, *dims: Any
) -> Iterator[tuple[str, Callable[[torch.Tensor], Any]]]:
    """The method along each dimension; `None` is of all numbers."""
    for dim in dims:
        given = () if dim is None else (dim,)
        yield f"{name}({'' if dim is None else dim})", partial(_called, name, given)


def _called(name: str, given: tuple[Any, ...], a: torch.Tensor) -> Any:
    return getattr(a, name)(*given)


def _table(names: str, *dims: Any) -> dict[str, Callable[[torch.Tensor], Any]]:
    return {what: work for name in names.split() for what, work in _along(name, *dims)}


_WIDE_INTEGERS: Operators = {
    **_table("sum", None, 0, 1, (0, 1)),
    **_table("prod", None, 1),
    **_table("cumsum cumprod", 0, 1),
    **_table("count_nonzero", None, 1),
    "sum(1, keepdim=True)": lambda a: a.sum(1, keepdim=True),
    "sum(1, dtype=torch.int64)": lambda a: a.sum(1, dtype=torch.int64),
    "sum, transposed,": lambda a: a.T.sum(0),
}

#: Of a matrix with long rows.
_WIDE_FLOATS: Operators = {
    **_table("sum mean", None, 1, (0, 1)),
    "sum(0), transposed,": lambda a: a.T.sum(0),
    "mean(0), transposed,": lambda a: a.T.mean(0),
    "nansum(1)": lambda a: a.nansum(1),
    "cumsum(1)": lambda a: a.cumsum(
        1
    ),  # along strided numbers torch's CUDA kernel adds up in their own type
    "dot": lambda a: torch.dot(a[0], a[1]),
    "mv": lambda a: torch.mv(a, a[0]),
    "mm": lambda a: a @ a.T,
    "bmm": lambda a: torch.bmm(a[None], a.T[None]),
    "baddbmm": lambda a: torch.baddbmm(a[None, :, :3], a[None], a.T[None]),
    "addmm": lambda a: torch.addmm(a[:, :3], a, a.T),
    "linear": lambda a: functional.linear(a, a, a[0, :3]),
    "norm()": lambda a: a.norm(),
    "norm(dim=1)": lambda a: a.norm(dim=1),
    "norm(1, dim=1)": lambda a: a.norm(1, dim=1),
    "norm(3, dim=1)": lambda a: a.norm(3, dim=1),
    "softmax(1)": lambda a: a.softmax(1),
    "softmax(0), transposed,": lambda a: a.T.softmax(0),
    "log_softmax(1)": lambda a: a.log_softmax(1),
    "logsumexp(1)": lambda a: a.logsumexp(1),
    "avg_pool1d": lambda a: functional.adaptive_avg_pool1d(a[None], 1),
}
#: Of numbers that differ.
_SPREAD: Operators = {
    "var(1)": lambda a: a.var(1),
    "var()": lambda a: a.var(),
    "std(1)": lambda a: a.std(1),
    "layer_norm": lambda a: functional.layer_norm(a, a.shape[1:]),
    "group_norm": lambda a: functional.group_norm(a[None], 1),
    "mse_loss": lambda a: functional.mse_loss(a, a.flip(0)),
    "l1_loss": lambda a: functional.l1_loss(a, a.flip(0)),
}

_DIMS = (None, 0, 1)
#: Values and places; each row and each column holds one NaN at most.
_NAN_OF: Operators = {
    **_table("max min argmax argmin", *_DIMS, -1),
    **_table("amax amin", *_DIMS, (0, 1)),
    **_table("median nanmedian", None, 0, 1),
    **_table("sum mean nansum nanmean", *_DIMS),
    **_table("prod var std", *_DIMS),
    **_table("all any", *_DIMS),
    **_table("cummax cummin cumsum cumprod logcumsumexp", 0, 1),
    **_table("sort", 0, 1),
    **_table("softmax log_softmax logsumexp", 0, 1),
    **{f"aminmax(dim={d})": lambda a, d=d: tuple(torch.aminmax(a, **({} if d is None else {"dim": d})))
       for d in _DIMS},
    "sort(1, descending=True)": lambda a: a.sort(1, descending=True),
    "argsort(1)": lambda a: a.argsort(1),
    "topk(3, 0)": lambda a: a.topk(3, 0).values,
    "topk(3, 1)": lambda a: a.topk(3, 1).values,
    "topk(3, 1, largest=False)": lambda a: a.topk(3, 1, largest=False).values,
    **{f"kthvalue({k}, {d})": lambda a, k=k, d=d: a.kthvalue(k, d).values for k in (1, 3, 6) for d in (0, 1)},
    **{f"norm({p}, {d})": lambda a, p=p, d=d: a.norm(p, d) if d is not None else a.norm(p)
       for p in (1, 2, 3, float("inf"), -float("inf")) for d in _DIMS},
    "dist": lambda a: torch.dist(a, a * 2),
    "max_pool1d": lambda a: functional.max_pool1d(a[None], 2),
    "max_pool2d": lambda a: functional.max_pool2d(a[None, None], 2),
    "adaptive_max_pool2d": lambda a: functional.adaptive_max_pool2d(a[None, None], 2),
    "avg_pool2d": lambda a: functional.avg_pool2d(a[None, None], 2),
    "matmul": lambda a: a @ a.T,
    "layer_norm": lambda a: functional.layer_norm(a, a.shape[1:]),
    "mse_loss": lambda a: functional.mse_loss(a, a.flip(0)),
    "cross_entropy": lambda a: functional.cross_entropy(
        a, torch.zeros_like(a[:, 0]).long(), reduction="none"
    ),
    "scatter_reduce amax": lambda a: a[0].scatter_reduce(0, torch.zeros_like(a[1]).long(), a[1], "amax"),
}  # fmt: skip
#: Of a row of NaN and ones, and one of NaN and zeros.
_NAN_IS_TRUE: Operators = {
    **_table("all any", 0, 1),
    "all of the first row": lambda a: a[0].all(),
    "any of the second row": lambda a: a[1].any(),
}
_NAN_EACH: Operators = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "max(a, b)": torch.max,
    "clamp(-1, 1)": lambda a, _: a.clamp(-1, 1),
    "clamp(min=0)": lambda a, _: a.clamp(min=0),
    "clamp(max=0)": lambda a, _: a.clamp(max=0),
    "clamp_min(0)": lambda a, _: torch.clamp_min(a, 0),
    "clamp_max(0)": lambda a, _: torch.clamp_max(a, 0),
    "clamp(min=b)": lambda a, b: a.clamp(min=b),
    "clamp(b, b + 1)": lambda a, b: torch.clamp(a, b, b + 1),
    "clamp_": lambda a, _: a.clone().clamp_(-1, 1),
    "relu": lambda a, _: a.relu(),
    "relu6": lambda a, _: functional.relu6(a),
    "leaky_relu": lambda a, _: functional.leaky_relu(a),
    "hardtanh": lambda a, _: functional.hardtanh(a),
    "elu": lambda a, _: functional.elu(a),
    "silu": lambda a, _: functional.silu(a),
    "softplus": lambda a, _: functional.softplus(a),
    "hardswish": lambda a, _: functional.hardswish(a),
    "threshold": lambda a, _: functional.threshold(a, 0.5, 0.0),
    "abs": lambda a, _: a.abs(),
    "ceil": lambda a, _: a.ceil(),
    "sign": lambda a, _: a.sign(),
    "pow": lambda a, b: a.abs() ** b,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "where": lambda a, b: torch.where(b > 0, a, b),
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "le": lambda a, b: a <= b,
    "isfinite": lambda a, _: a.isfinite(),
    "isclose": lambda a, b: torch.isclose(a, b, equal_nan=True),
    "equal": lambda a, _: torch.equal(a, a.clone()),
    "nan_to_num(2, 3, 4)": lambda a, _: a.nan_to_num(2.0, 3.0, 4.0),
}

#: Where equals stand is promised by torch's documentation: the first.
_FIRST: Operators = {
    **_table("argmax argmin", None, 0, 1, -1),
    **_table("max min", 0, 1, -1),
    "argmax(1, keepdim=True)": lambda a: a.argmax(1, keepdim=True),
    "argmax(0), transposed,": lambda a: a.T.argmax(0),
    **{
        f"sort({dim}, stable=True, descending={down})": partial(
            lambda a, dim, down: a.sort(dim=dim, stable=True, descending=down),
            dim=dim,
            down=down,
        )
        for dim in (0, 1)
        for down in (False, True)
    },
    "argsort(1, stable=True)": lambda a: a.argsort(dim=1, stable=True),
    "nonzero": lambda a: a.nonzero(),
    "masked_select": lambda a: a[a > a.min()],
    "unique": lambda a: a.unique(return_inverse=True, return_counts=True),
    "unique without places": lambda a: a.unique(),
    "unique(dim=1)": lambda a: a.unique(dim=1, return_inverse=True, return_counts=True),
    "unique_consecutive": lambda a: a.unique_consecutive(
        return_inverse=True, return_counts=True
    ),
    "searchsorted": lambda a: torch.searchsorted(a.flatten().sort().values, a),
    "searchsorted(right=True)": lambda a: torch.searchsorted(
        a.flatten().sort().values, a, right=True
    ),
    "bucketize": lambda a: torch.bucketize(a, a[0].sort().values),
    "bucketize(right=True)": lambda a: torch.bucketize(
        a, a[0].sort().values, right=True
    ),
}


def _at_places(a: torch.Tensor, found: Any, dim: int) -> list[torch.Tensor]:
    """The values, the numbers at their places, which are the same, and whether a place is given twice."""
    values, places = (each.detach().cpu() for each in found)
    if values.dim() < a.dim():
        values, places = values.unsqueeze(dim), places.unsqueeze(dim)
    there = a.detach().cpu().gather(dim, places)
    twice = places.sort(dim).values.diff(dim=dim) == 0
    return [values, there, torch.equal(values, there), twice.any()]


def _counted(a: torch.Tensor, found: Any, dim: int) -> list[Any]:
    """How often the value of `mode` is there, and whether it stands at its place."""
    values, places = (each.detach().cpu().unsqueeze(dim) for each in found)
    host = a.detach().cpu()
    return [(host == values).sum(dim), torch.equal(host.gather(dim, places), values)]


#: Which of equals is open; the value stands at the place.
_SOME: Operators = {
    **{
        f"topk({k}, {dim}, largest={most})": partial(
            lambda a, k, dim, most: _at_places(a, a.topk(k, dim, largest=most), dim),
            k=k,
            dim=dim,
            most=most,
        )
        for k, dim in ((1, 1), (3, 0), (4, 1))
        for most in (True, False)
    },
    **{
        f"{name}({dim})": partial(
            lambda a, n, d: _at_places(a, getattr(a, n)(d), d), n=name, d=dim
        )
        for name in ("median", "nanmedian")
        for dim in (0, 1)
    },
    "median()": lambda a: a.median(),
    "sort(1)": lambda a: _at_places(a, a.sort(1), 1),
    "sort(0, descending=True)": lambda a: _at_places(a, a.sort(0, descending=True), 0),
    **{
        f"kthvalue({k}, {dim})": partial(
            lambda a, k, d: _at_places(a, a.kthvalue(k, d), d), k=k, d=dim
        )
        for k in (2, 4)
        for dim in (0, 1)
    },
    "mode(0)": lambda a: _counted(a, a.mode(0), 0),
    "mode(1)": lambda a: _counted(a, a.mode(1), 1),
    "cummax(1), its values,": lambda a: a.cummax(1).values,
    "cummin(0), its values,": lambda a: a.cummin(0).values,
}
#: The gradient where equals share it, or where a function bends.
_BENDS: Operators = {
    "gradient of amax(1)": lambda a: gradient(lambda x: x.amax(1).sum(), a),
    "gradient of max()": lambda a: gradient(lambda x: x.max(), a),
    "gradient of max(1)": lambda a: gradient(lambda x: x.max(1).values.sum(), a),
    "gradient of relu": lambda a: gradient(lambda x: (x - 2).relu().sum(), a),
    "gradient of abs": lambda a: gradient(lambda x: (x - 2).abs().sum(), a),
    "gradient of clamp": lambda a: gradient(lambda x: x.clamp(1, 2).sum(), a),
    "gradient of prod": lambda a: gradient(lambda x: (x - 1).prod(1).sum(), a),
}


def _scattered(
    reduce: str, *, include: bool
) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    return lambda x, at: torch.full_like(x[:4, 0], 3).scatter_reduce(
        0, at, x[:, 0], reduce, include_self=include
    )


#: `x` has as many rows as `at` has indices, each below 4 and most of them many times.
_TWICE: Operators = {
    "index_add(0)": lambda x, at: torch.zeros_like(x[:4]).index_add(0, at, x),
    "index_add(1)": lambda x, at: torch.zeros_like(x[:4].T).index_add(1, at, x.T),
    "index_add(0, alpha=2)": lambda x, at: torch.ones_like(x[:4]).index_add(
        0, at, x, alpha=2
    ),
    "index_add_ of a vector": lambda x, at: torch.zeros_like(x[:4, 0]).index_add_(
        0, at, x[:, 0]
    ),
    "scatter_add(0)": lambda x, at: torch.zeros_like(x[:4]).scatter_add(
        0, at[:, None].expand_as(x), x
    ),
    "scatter_add(1)": lambda x, at: torch.zeros_like(x[:4].T).scatter_add(
        1, at.expand_as(x.T), x.T
    ),
    "scatter(reduce='add')": lambda x, at: torch.zeros_like(x[:4, 0]).scatter(
        0, at, x[:, 0], reduce="add"
    ),
    **{
        f"scatter_reduce({reduce!r}, include_self={include})": _scattered(
            reduce, include=include
        )
        for reduce in ("sum", "amax", "amin", "mean")
        for include in (True, False)
    },
    "index_reduce('amax')": lambda x, at: torch.zeros_like(x[:4]).index_reduce(
        0, at, x, "amax"
    ),
    "index_put(accumulate=True)": lambda x, at: torch.zeros_like(x[:4]).index_put(
        (at,), x, accumulate=True
    ),
    "index_put of two indices": lambda x, at: torch.ones_like(x[:4]).index_put(
        (at, at % 2), x[:, 0], accumulate=True
    ),
    "index_put of one number": lambda x, at: torch.ones_like(x[:4]).index_put(
        (at,), torch.ones_like(x[0, 0]), accumulate=True
    ),
    "index_put of negative indices": lambda x, at: torch.ones_like(x[:4]).index_put(
        (at - 4,), x, accumulate=True
    ),
    "put_(accumulate=True)": lambda x, at: torch.zeros_like(x[:4, 0]).put_(
        at, x[:, 0], accumulate=True
    ),
    "bincount": lambda _, at: at.bincount(minlength=6),
    "unique's counts": lambda _, at: at.unique(return_counts=True),
}
#: These take floating numbers alone.
_TWICE_FLOATS: Operators = {
    "index_reduce('mean', include_self=False)": lambda x, at: torch.ones_like(x[:4]).index_reduce(
        0, at, x, "mean", include_self=False
    ),
    "index_reduce('amin', include_self=False)": lambda x, at: torch.zeros_like(x[:4]).index_reduce(
        0, at, x, "amin", include_self=False
    ),
    "histc": lambda x, at: torch.histc(at.to(x.dtype), 3, 0, 3),
    "histc of a part": lambda x, at: torch.histc(at.to(x.dtype), 2, 1, 2),
    **{
        f"gradient of embedding, {words}": partial(
            lambda x, at, more: gradient(
                lambda w: (functional.embedding(at, w, **more) * x).sum(), torch.ones_like(x[:4])
            ),
            more=more,
        )
        for words, more in {
            "plain": {},
            "padding_idx=2": {"padding_idx": 2}, "scale_grad_by_freq": {"scale_grad_by_freq": True},
        }.items()
    },
    **{
        f"embedding_bag, {mode}": partial(
            lambda x, at, mode: functional.embedding_bag(
                at[:6], x[:4].contiguous(), torch.tensor([0, 2, 5], device=at.device), mode=mode
            ),
            mode=mode,
        )
        for mode in ("sum", "mean", "max")
    },
    "gradient of index_select": lambda x, at: gradient(
        lambda w: (w.index_select(0, at) * x).sum(), torch.ones_like(x[:4])
    ),
    "gradient of indexing": lambda x, at: gradient(lambda w: (w[at] * x).sum(), torch.ones_like(x[:4])),
    "gradient of gather": lambda x, at: gradient(
        lambda w: (w.gather(0, at[:, None].expand_as(x)) * x).sum(), torch.ones_like(x[:4])
    ),
    "gradient of take": lambda x, at: gradient(
        lambda w: (w.take(at) * x[:, 0]).sum(), torch.ones_like(x[:4, 0])
    ),
    "gradient of expand": lambda x, _: gradient(lambda w: (w.expand_as(x) * x).sum(), torch.ones_like(x[:1])),
}  # fmt: skip
_WEIGHED: Operators = {
    "bincount(weights)": lambda x, at: at.bincount(x[:, 0].abs()),
    "bincount(weights, minlength=9)": lambda x, at: at.bincount(
        x[:, 1].abs(), minlength=9
    ),
}


class TestReductions(Subject):
    """Many numbers that become one: where kernels save width, forget NaN, or lose what comes twice."""

    def test_integers_are_added_up_in_int64(self, accelerator: Accelerator) -> None:
        """Sums and products of small integers and booleans are int64: counts of tokens overflow otherwise."""
        for dtype, top in (
            (torch.int32, 2**30), (torch.int16, 30_000), (torch.int8, 120),
            (torch.uint8, 250), (torch.bool, 1),
        ):  # fmt: skip
            columns = 3 if top == 2**30 else 311
            given = (
                torch.full((2, columns), top)
                .sub(torch.arange(columns) % 2 * (top > 1))
                .to(dtype)
            )
            hold(accelerator, _WIDE_INTEGERS, given, way=f"numbers up to {top}")
        sevens = torch.full((2, 11), 7, dtype=torch.int32)
        hold(
            accelerator,
            _table("prod cumprod", 1) | _table("prod", None),
            sevens,
            way="sevens",
        )
        large = torch.tensor([[2**53, 1, 3], [7, 2**53, 5]])
        hold(
            accelerator,
            _table("sum cumsum", 0, 1),
            large,
            way="numbers that float64 lacks",
        )

    def test_halves_are_added_up_in_float32(self, accelerator: Accelerator) -> None:
        """Sums in float16 and bfloat16 are added up in float32: in their own type they stand still early."""
        halves = [
            d
            for d in accelerator.supported_dtypes()
            if d in (torch.float16, torch.bfloat16)
        ]
        if not halves:
            not_claimed("neither float16 nor bfloat16 is supported")
        steps = (torch.arange(3 * _MANY).reshape(3, _MANY) % 5 - 2) / 4
        for dtype in halves:
            ones = torch.ones(3, _MANY, dtype=dtype)
            hold(
                accelerator,
                _WIDE_FLOATS,
                ones,
                way=f"{_MANY} ones",
                reference=torch.float64,
            )
            for name in ("mean", "norm"):
                work: Operators = {
                    f"{name}(dim=1)": lambda a, n=name: getattr(a, n)(dim=1)
                }
                tall = torch.full((3, 300), 400.0, dtype=dtype)
                hold(
                    accelerator,
                    work,
                    tall,
                    way="300 times 400",
                    reference=torch.float64,
                )
            far = (steps + 8).to(dtype)
            hold(
                accelerator,
                _SPREAD,
                far,
                way="numbers about 8",
                reference=torch.float64,
            )

    def test_nan_in_every_reduction(self, accelerator: Accelerator) -> None:
        """NaN stays in maxima, medians, norms and sums, at its place, in every dimension and type."""
        given = torch.arange(42.0).reshape(6, 7).mul(5).remainder(41).sub(20) / 8
        for row, column in ((0, 0), (2, 3), (4, 6)):
            given[row, column] = _NAN
        other = given.flip(0).roll(1, 1)
        for dtype in claimed_types(accelerator):
            reference = torch.float64 if dtype is torch.float64 else torch.float32
            # Of all numbers of bfloat16 torch's CUDA kernel (2.11, an H200) gives a median without the NaN.
            known = ("median()", "nanmedian()") if dtype is torch.bfloat16 else ()
            asked = {name: work for name, work in _NAN_OF.items() if name not in known}
            hold(
                accelerator, asked, given.to(dtype), way="with NaN", reference=reference
            )
            hold(
                accelerator,
                _NAN_EACH,
                given.to(dtype),
                other.to(dtype),
                way="with NaN",
                reference=reference,
            )
            truths = torch.tensor([[_NAN, 1.0, 2.0], [0.0, _NAN, 0.0]]).to(dtype)
            hold(
                accelerator,
                _NAN_IS_TRUE,
                truths,
                way="with NaN, which is true",
                reference=reference,
            )
        long = torch.arange(3.0 * _LONG).reshape(3, _LONG).remainder(1009) / 8
        long[1, -3] = long[2, 5000] = _NAN
        hold(
            accelerator,
            _table("amax amin argmax argmin sum norm all", None, 1),
            long,
            way="a NaN in a long row",
        )
        hold(
            accelerator,
            {
                **_table("amax amin argmax argmin sum mean", 0),
                "median(0)": lambda a: a.median(0).values,
            },
            long.T.contiguous(),
            way="a NaN in a long column",
        )

    def test_first_of_equals(self, accelerator: Accelerator) -> None:
        """`argmax` and its like give the first of equal elements, and a stable sort keeps the order."""
        given = torch.tensor(
            [[2, 3, 1, 3, 1, 2, 3], [1, 1, 1, 1, 1, 1, 1], [1, 2, 3, 1, 2, 3, 1]]
        )
        for dtype in (
            *claimed_types(accelerator),
            torch.int64,
            torch.int32,
            torch.uint8,
        ):
            hold(accelerator, _FIRST, given.to(dtype), way="with equals")
        long = torch.arange(2 * _LONG).reshape(2, _LONG) % 7
        for dtype in (torch.float32, torch.int64):
            hold(accelerator, _FIRST, long.to(dtype), way="a long row with equals")
            hold(
                accelerator,
                _table("argmax argmin max min", 0),
                long.T.contiguous().to(dtype),
                way="long columns",
            )

    def test_some_of_equals(self, accelerator: Accelerator) -> None:
        """The values of `topk`, `median`, `kthvalue` and `mode` stand at the places given with them."""
        given = torch.tensor(
            [
                [2, 3, 1, 3, 1, 2, 3],
                [1, 1, 2, 2, 1, 1, 1],
                [1, 2, 3, 1, 2, 3, 1],
                [4, 2, 2, 0, 4, 4, 2],
            ]
        )
        for dtype in (*claimed_types(accelerator), torch.int64, torch.int32):
            hold(accelerator, _SOME, given.to(dtype), way="with equals")
            distinct = (
                (given * 7 + torch.arange(7) * 3 + torch.arange(4)[:, None])
                .remainder(29)
                .to(dtype)
            )
            hold(accelerator, _SOME, distinct, way="ordinary numbers")
        hold(accelerator, _BENDS, given.float(), way="with equals")
        long = (torch.arange(4 * _LONG).reshape(4, _LONG) * 7919) % 5003
        hold(accelerator, _SOME, long.float(), way="a long row with equals")

    def test_duplicates_all_count(self, accelerator: Accelerator) -> None:
        """Additions at one index count each time, in every way to add: no update is lost."""
        for count, places in ((7, (2, 0, 2, 2, 1, 0, 2)), (5003, None)):
            at = torch.tensor(places) if places else torch.arange(count) * 7 % 11 % 4
            given = torch.arange(3.0 * count).reshape(count, 3) % 3 + 1
            way = f"{count} at 4 indices"
            few = [
                d
                for d in claimed_types(accelerator)
                if count < 100 or d in (torch.float32, torch.float64)
            ]
            for dtype in few:
                hold(
                    accelerator,
                    {**_TWICE, **_TWICE_FLOATS},
                    given.to(dtype),
                    at,
                    way=way,
                    reference=torch.float64,
                )
            hold(accelerator, _WEIGHED, given, at, way=way)
            hold(accelerator, _TWICE, given.to(torch.int32), at, way=way)
            hold(
                accelerator,
                _TWICE,
                given.to(torch.int64) + 2**54,
                at,
                way=f"{way}, large numbers",
            )
