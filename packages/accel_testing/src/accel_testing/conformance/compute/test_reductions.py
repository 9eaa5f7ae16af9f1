"""Checks of sums, extrema and sorts: their accuracy, and their results for NaN, ties and repeated indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import skip_unsupported
from accel_testing.conformance.compute.comparison import (
    Operators,
    assert_matches_cpu,
    claimed_types,
    gradient,
)

__all__ = ["TestReductions"]

_NAN = float("nan")
#: A length that is not a multiple of a vector or a block.
_LONG = 10_007
#: A number of ones whose sum stops growing if it is computed in float16 or bfloat16.
_STALLING_COUNT = 4099


def _methods_along(
    name: str, *dims: Any
) -> Iterator[tuple[str, Callable[[torch.Tensor], Any]]]:
    """Yield the text and function of a method call for each dimension; `None` reduces all numbers."""
    for dim in dims:
        if dim is None:
            yield f"{name}()", partial(_call_method, name, ())
        else:
            yield f"{name}({dim})", partial(_call_method, name, (dim,))


def _call_method(name: str, arguments: tuple[Any, ...], a: torch.Tensor) -> Any:
    """Return the result of the tensor method called `name`."""
    return getattr(a, name)(*arguments)


def _methods(names: str, *dims: Any) -> dict[str, Callable[[torch.Tensor], Any]]:
    """Return calls along each dimension of the methods in `names`, which are separated by spaces."""
    calls: dict[str, Callable[[torch.Tensor], Any]] = {}
    for name in names.split():
        calls.update(_methods_along(name, *dims))
    return calls


_INTEGER_SUMS: Operators = {
    **_methods("sum", None, 0, 1, (0, 1)),
    **_methods("prod", None, 1),
    **_methods("cumsum cumprod", 0, 1),
    **_methods("count_nonzero", None, 1),
    "sum(1, keepdim=True)": lambda a: a.sum(1, keepdim=True),
    "sum(1, dtype=torch.int64)": lambda a: a.sum(1, dtype=torch.int64),
    "sum, transposed,": lambda a: a.T.sum(0),
}

#: Functions of a matrix with long rows.
_FLOAT_SUMS: Operators = {
    **_methods("sum mean", None, 1, (0, 1)),
    "sum(0), transposed,": lambda a: a.T.sum(0),
    "mean(0), transposed,": lambda a: a.T.mean(0),
    "nansum(1)": lambda a: a.nansum(1),
    "cumsum(1)": lambda a: a.cumsum(
        1
    ),  # for strided numbers torch's CUDA kernel accumulates in the numbers' type
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
#: Functions of numbers whose deviation is not zero.
_DEVIATIONS: Operators = {
    "var(1)": lambda a: a.var(1),
    "var()": lambda a: a.var(),
    "std(1)": lambda a: a.std(1),
    "layer_norm": lambda a: functional.layer_norm(a, a.shape[1:]),
    "group_norm": lambda a: functional.group_norm(a[None], 1),
    "mse_loss": lambda a: functional.mse_loss(a, a.flip(0)),
    "l1_loss": lambda a: functional.l1_loss(a, a.flip(0)),
}

_DIMS = (None, 0, 1)
#: Functions of a matrix with at most one NaN in each row and column.
_ON_NAN: Operators = {
    **_methods("max min argmax argmin", *_DIMS, -1),
    **_methods("amax amin", *_DIMS, (0, 1)),
    **_methods("median nanmedian", None, 0, 1),
    **_methods("sum mean nansum nanmean", *_DIMS),
    **_methods("prod var std", *_DIMS),
    **_methods("all any", *_DIMS),
    **_methods("cummax cummin cumsum cumprod logcumsumexp", 0, 1),
    **_methods("sort", 0, 1),
    **_methods("softmax log_softmax logsumexp", 0, 1),
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
#: Functions of a row of NaN and ones, and of a row of NaN and zeros.
_NAN_IS_TRUE: Operators = {
    **_methods("all any", 0, 1),
    "all of the first row": lambda a: a[0].all(),
    "any of the second row": lambda a: a[1].any(),
}
_ELEMENTWISE_ON_NAN: Operators = {
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

#: Operators that return the first of equal elements, as torch's documentation promises.
_FIRST_OF_EQUALS: Operators = {
    **_methods("argmax argmin", None, 0, 1, -1),
    **_methods("max min", 0, 1, -1),
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


def _values_and_places(a: torch.Tensor, result: Any, dim: int) -> list[Any]:
    """Return the part of a result of values and indices that must be the same on every device.

    This part consists of the values, the elements at the indices, whether both are equal, and whether an
    index is repeated.
    """
    values, indices = (tensor.detach().cpu() for tensor in result)
    if values.dim() < a.dim():
        values, indices = values.unsqueeze(dim), indices.unsqueeze(dim)
    elements = a.detach().cpu().gather(dim, indices)
    is_repeated = indices.sort(dim).values.diff(dim=dim) == 0
    return [values, elements, torch.equal(values, elements), is_repeated.any()]


def _mode_and_place(a: torch.Tensor, result: Any, dim: int) -> list[Any]:
    """Return the count of `mode`'s value, and whether the value is the element at the returned index."""
    values, indices = (tensor.detach().cpu().unsqueeze(dim) for tensor in result)
    on_cpu = a.detach().cpu()
    elements = on_cpu.gather(dim, indices)
    return [(on_cpu == values).sum(dim), torch.equal(elements, values)]


#: Operators that may return any of several equal elements; the value at the returned index is compared.
_ANY_OF_EQUALS: Operators = {
    **{
        f"topk({k}, {dim}, largest={most})": partial(
            lambda a, k, dim, most: _values_and_places(
                a, a.topk(k, dim, largest=most), dim
            ),
            k=k,
            dim=dim,
            most=most,
        )
        for k, dim in ((1, 1), (3, 0), (4, 1))
        for most in (True, False)
    },
    **{
        f"{name}({dim})": partial(
            lambda a, n, d: _values_and_places(a, getattr(a, n)(d), d), n=name, d=dim
        )
        for name in ("median", "nanmedian")
        for dim in (0, 1)
    },
    "median()": lambda a: a.median(),
    "sort(1)": lambda a: _values_and_places(a, a.sort(1), 1),
    "sort(0, descending=True)": lambda a: _values_and_places(
        a, a.sort(0, descending=True), 0
    ),
    **{
        f"kthvalue({k}, {dim})": partial(
            lambda a, k, d: _values_and_places(a, a.kthvalue(k, d), d), k=k, d=dim
        )
        for k in (2, 4)
        for dim in (0, 1)
    },
    "mode(0)": lambda a: _mode_and_place(a, a.mode(0), 0),
    "mode(1)": lambda a: _mode_and_place(a, a.mode(1), 1),
    "cummax(1), its values,": lambda a: a.cummax(1).values,
    "cummin(0), its values,": lambda a: a.cummin(0).values,
}
#: Gradients that equal elements share, and gradients at points where a function is not smooth.
_GRADIENTS_OF_TIES: Operators = {
    "gradient of amax(1)": lambda a: gradient(lambda x: x.amax(1).sum(), a),
    "gradient of max()": lambda a: gradient(lambda x: x.max(), a),
    "gradient of max(1)": lambda a: gradient(lambda x: x.max(1).values.sum(), a),
    "gradient of relu": lambda a: gradient(lambda x: (x - 2).relu().sum(), a),
    "gradient of abs": lambda a: gradient(lambda x: (x - 2).abs().sum(), a),
    "gradient of clamp": lambda a: gradient(lambda x: x.clamp(1, 2).sum(), a),
    "gradient of prod": lambda a: gradient(lambda x: (x - 1).prod(1).sum(), a),
}


def _scatter_reduce(
    reduce: str, *, include: bool
) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    """Return a function that reduces numbers into four elements with `scatter_reduce`."""
    return lambda x, index: torch.full_like(x[:4, 0], 3).scatter_reduce(
        0, index, x[:, 0], reduce, include_self=include
    )


#: Functions of `x` and `index`. `x` has one row for each index; indices are below 4, and most are repeated.
_REPEATED_INDICES: Operators = {
    "index_add(0)": lambda x, index: torch.zeros_like(x[:4]).index_add(0, index, x),
    "index_add(1)": lambda x, index: torch.zeros_like(x[:4].T).index_add(1, index, x.T),
    "index_add(0, alpha=2)": lambda x, index: torch.ones_like(x[:4]).index_add(
        0, index, x, alpha=2
    ),
    "index_add_ of a vector": lambda x, index: torch.zeros_like(x[:4, 0]).index_add_(
        0, index, x[:, 0]
    ),
    "scatter_add(0)": lambda x, index: torch.zeros_like(x[:4]).scatter_add(
        0, index[:, None].expand_as(x), x
    ),
    "scatter_add(1)": lambda x, index: torch.zeros_like(x[:4].T).scatter_add(
        1, index.expand_as(x.T), x.T
    ),
    "scatter(reduce='add')": lambda x, index: torch.zeros_like(x[:4, 0]).scatter(
        0, index, x[:, 0], reduce="add"
    ),
    **{
        f"scatter_reduce({reduce!r}, include_self={include})": _scatter_reduce(
            reduce, include=include
        )
        for reduce in ("sum", "amax", "amin", "mean")
        for include in (True, False)
    },
    "index_reduce('amax')": lambda x, index: torch.zeros_like(x[:4]).index_reduce(
        0, index, x, "amax"
    ),
    "index_put(accumulate=True)": lambda x, index: torch.zeros_like(x[:4]).index_put(
        (index,), x, accumulate=True
    ),
    "index_put of two indices": lambda x, index: torch.ones_like(x[:4]).index_put(
        (index, index % 2), x[:, 0], accumulate=True
    ),
    "index_put of one number": lambda x, index: torch.ones_like(x[:4]).index_put(
        (index,), torch.ones_like(x[0, 0]), accumulate=True
    ),
    "index_put of negative indices": lambda x, index: torch.ones_like(x[:4]).index_put(
        (index - 4,), x, accumulate=True
    ),
    "put_(accumulate=True)": lambda x, index: torch.zeros_like(x[:4, 0]).put_(
        index, x[:, 0], accumulate=True
    ),
    "bincount": lambda _, index: index.bincount(minlength=6),
    "unique's counts": lambda _, index: index.unique(return_counts=True),
}
#: Functions of `x` and `index` that accept only floating-point numbers.
_REPEATED_INDICES_OF_FLOATS: Operators = {
    "index_reduce('mean', include_self=False)": lambda x, index: torch.ones_like(x[:4]).index_reduce(
        0, index, x, "mean", include_self=False
    ),
    "index_reduce('amin', include_self=False)": lambda x, index: torch.zeros_like(x[:4]).index_reduce(
        0, index, x, "amin", include_self=False
    ),
    "histc": lambda x, index: torch.histc(index.to(x.dtype), 3, 0, 3),
    "histc of a part": lambda x, index: torch.histc(index.to(x.dtype), 2, 1, 2),
    **{
        f"gradient of embedding, {description}": partial(
            lambda x, index, options: gradient(
                lambda w: (functional.embedding(index, w, **options) * x).sum(), torch.ones_like(x[:4])
            ),
            options=options,
        )
        for description, options in {
            "plain": {},
            "padding_idx=2": {"padding_idx": 2}, "scale_grad_by_freq": {"scale_grad_by_freq": True},
        }.items()
    },
    **{
        f"embedding_bag, {mode}": partial(
            lambda x, index, mode: functional.embedding_bag(
                index[:6], x[:4].contiguous(), torch.tensor([0, 2, 5], device=index.device), mode=mode
            ),
            mode=mode,
        )
        for mode in ("sum", "mean", "max")
    },
    "gradient of index_select": lambda x, index: gradient(
        lambda w: (w.index_select(0, index) * x).sum(), torch.ones_like(x[:4])
    ),
    "gradient of indexing": lambda x, index: gradient(lambda w: (w[index] * x).sum(), torch.ones_like(x[:4])),
    "gradient of gather": lambda x, index: gradient(
        lambda w: (w.gather(0, index[:, None].expand_as(x)) * x).sum(), torch.ones_like(x[:4])
    ),
    "gradient of take": lambda x, index: gradient(
        lambda w: (w.take(index) * x[:, 0]).sum(), torch.ones_like(x[:4, 0])
    ),
    "gradient of expand": lambda x, _: gradient(lambda w: (w.expand_as(x) * x).sum(), torch.ones_like(x[:1])),
}  # fmt: skip
_WEIGHTED_COUNTS: Operators = {
    "bincount(weights)": lambda x, index: index.bincount(x[:, 0].abs()),
    "bincount(weights, minlength=9)": lambda x, index: index.bincount(
        x[:, 1].abs(), minlength=9
    ),
}


class TestReductions(BackendTestBase):
    """Kernels that reduce many numbers may lose accuracy, NaN, or numbers with equal indices."""

    def test_integers_are_added_up_in_int64(self, accelerator: Accelerator) -> None:
        """Sums and products of small integers and booleans use int64, so that counts do not overflow."""
        for dtype, largest in (
            (torch.int32, 2**30), (torch.int16, 30_000), (torch.int8, 120),
            (torch.uint8, 250), (torch.bool, 1),
        ):  # fmt: skip
            columns = 3 if largest == 2**30 else 311
            # Every second number is smaller by one, except for booleans.
            less = torch.arange(columns) % 2 * (largest > 1)
            matrix = torch.full((2, columns), largest).sub(less).to(dtype)
            assert_matches_cpu(
                accelerator,
                _INTEGER_SUMS,
                matrix,
                description=f"numbers up to {largest}",
            )
        sevens = torch.full((2, 11), 7, dtype=torch.int32)
        assert_matches_cpu(
            accelerator,
            _methods("prod cumprod", 1) | _methods("prod", None),
            sevens,
            description="sevens",
        )
        large = torch.tensor([[2**53, 1, 3], [7, 2**53, 5]])
        assert_matches_cpu(
            accelerator,
            _methods("sum cumsum", 0, 1),
            large,
            description="numbers that float64 lacks",
        )

    def test_halves_are_added_up_in_float32(self, accelerator: Accelerator) -> None:
        """Sums of float16 and bfloat16 accumulate in float32, because sums in a short type stop growing."""
        short_types = [
            dtype
            for dtype in accelerator.supported_dtypes()
            if dtype in (torch.float16, torch.bfloat16)
        ]
        if not short_types:
            skip_unsupported("neither float16 nor bfloat16 is supported")
        steps = (
            torch.arange(3 * _STALLING_COUNT).reshape(3, _STALLING_COUNT) % 5 - 2
        ) / 4
        for dtype in short_types:
            ones = torch.ones(3, _STALLING_COUNT, dtype=dtype)
            assert_matches_cpu(
                accelerator,
                _FLOAT_SUMS,
                ones,
                description=f"{_STALLING_COUNT} ones",
                reference_dtype=torch.float64,
            )
            for name in ("mean", "norm"):
                operator: Operators = {
                    f"{name}(dim=1)": lambda a, n=name: getattr(a, n)(dim=1)
                }
                large = torch.full((3, 300), 400.0, dtype=dtype)
                assert_matches_cpu(
                    accelerator,
                    operator,
                    large,
                    description="300 times 400",
                    reference_dtype=torch.float64,
                )
            near_eight = (steps + 8).to(dtype)
            assert_matches_cpu(
                accelerator,
                _DEVIATIONS,
                near_eight,
                description="numbers about 8",
                reference_dtype=torch.float64,
            )

    def test_nan_in_every_reduction(self, accelerator: Accelerator) -> None:
        """Maxima, medians, norms and sums propagate NaN in every dimension and type."""
        matrix = torch.arange(42.0).reshape(6, 7).mul(5).remainder(41).sub(20) / 8
        for row, column in ((0, 0), (2, 3), (4, 6)):
            matrix[row, column] = _NAN
        other = matrix.flip(0).roll(1, 1)
        for dtype in claimed_types(accelerator):
            reference_dtype = torch.float64 if dtype is torch.float64 else torch.float32
            # torch's CUDA kernel (2.11, an H200) returns a median without NaN for a whole bfloat16 tensor.
            wrong_in_torch = (
                ("median()", "nanmedian()") if dtype is torch.bfloat16 else ()
            )
            operators = {
                name: operator
                for name, operator in _ON_NAN.items()
                if name not in wrong_in_torch
            }
            assert_matches_cpu(
                accelerator,
                operators,
                matrix.to(dtype),
                description="with NaN",
                reference_dtype=reference_dtype,
            )
            assert_matches_cpu(
                accelerator,
                _ELEMENTWISE_ON_NAN,
                matrix.to(dtype),
                other.to(dtype),
                description="with NaN",
                reference_dtype=reference_dtype,
            )
            truth_values = torch.tensor([[_NAN, 1.0, 2.0], [0.0, _NAN, 0.0]]).to(dtype)
            assert_matches_cpu(
                accelerator,
                _NAN_IS_TRUE,
                truth_values,
                description="with NaN, which is true",
                reference_dtype=reference_dtype,
            )
        long_rows = torch.arange(3.0 * _LONG).reshape(3, _LONG).remainder(1009) / 8
        long_rows[1, -3] = long_rows[2, 5000] = _NAN
        assert_matches_cpu(
            accelerator,
            _methods("amax amin argmax argmin sum norm all", None, 1),
            long_rows,
            description="a NaN in a long row",
        )
        assert_matches_cpu(
            accelerator,
            {
                **_methods("amax amin argmax argmin sum mean", 0),
                "median(0)": lambda a: a.median(0).values,
            },
            long_rows.T.contiguous(),
            description="a NaN in a long column",
        )

    def test_first_of_equals(self, accelerator: Accelerator) -> None:
        """`argmax` and similar operators return the first of equal elements; stable sorts keep the order."""
        matrix = torch.tensor(
            [[2, 3, 1, 3, 1, 2, 3], [1, 1, 1, 1, 1, 1, 1], [1, 2, 3, 1, 2, 3, 1]]
        )
        for dtype in (
            *claimed_types(accelerator),
            torch.int64,
            torch.int32,
            torch.uint8,
        ):
            assert_matches_cpu(
                accelerator,
                _FIRST_OF_EQUALS,
                matrix.to(dtype),
                description="with equals",
            )
        long_rows = torch.arange(2 * _LONG).reshape(2, _LONG) % 7
        for dtype in (torch.float32, torch.int64):
            assert_matches_cpu(
                accelerator,
                _FIRST_OF_EQUALS,
                long_rows.to(dtype),
                description="a long row with equals",
            )
            assert_matches_cpu(
                accelerator,
                _methods("argmax argmin max min", 0),
                long_rows.T.contiguous().to(dtype),
                description="long columns",
            )

    def test_some_of_equals(self, accelerator: Accelerator) -> None:
        """`topk`, `median`, `kthvalue` and `mode` return values with the indices of these values."""
        matrix = torch.tensor(
            [
                [2, 3, 1, 3, 1, 2, 3],
                [1, 1, 2, 2, 1, 1, 1],
                [1, 2, 3, 1, 2, 3, 1],
                [4, 2, 2, 0, 4, 4, 2],
            ]
        )
        for dtype in (*claimed_types(accelerator), torch.int64, torch.int32):
            assert_matches_cpu(
                accelerator, _ANY_OF_EQUALS, matrix.to(dtype), description="with equals"
            )
            distinct = (
                (matrix * 7 + torch.arange(7) * 3 + torch.arange(4)[:, None])
                .remainder(29)
                .to(dtype)
            )
            assert_matches_cpu(
                accelerator, _ANY_OF_EQUALS, distinct, description="ordinary numbers"
            )
        assert_matches_cpu(
            accelerator, _GRADIENTS_OF_TIES, matrix.float(), description="with equals"
        )
        long_rows = (torch.arange(4 * _LONG).reshape(4, _LONG) * 7919) % 5003
        assert_matches_cpu(
            accelerator,
            _ANY_OF_EQUALS,
            long_rows.float(),
            description="a long row with equals",
        )

    def test_duplicates_all_count(self, accelerator: Accelerator) -> None:
        """Every operator that adds at indices adds each time if an index is repeated: no update is lost."""
        for count, given_indices in ((7, (2, 0, 2, 2, 1, 0, 2)), (5003, None)):
            indices = (
                torch.tensor(given_indices)
                if given_indices
                else torch.arange(count) * 7 % 11 % 4
            )
            rows = torch.arange(3.0 * count).reshape(count, 3) % 3 + 1
            description = f"{count} at 4 indices"
            # Many numbers are added only in types of full precision.
            dtypes = [
                dtype
                for dtype in claimed_types(accelerator)
                if count < 100 or dtype in (torch.float32, torch.float64)
            ]
            for dtype in dtypes:
                assert_matches_cpu(
                    accelerator,
                    {**_REPEATED_INDICES, **_REPEATED_INDICES_OF_FLOATS},
                    rows.to(dtype),
                    indices,
                    description=description,
                    reference_dtype=torch.float64,
                )
            assert_matches_cpu(
                accelerator, _WEIGHTED_COUNTS, rows, indices, description=description
            )
            assert_matches_cpu(
                accelerator,
                _REPEATED_INDICES,
                rows.to(torch.int32),
                indices,
                description=description,
            )
            assert_matches_cpu(
                accelerator,
                _REPEATED_INDICES,
                rows.to(torch.int64) + 2**54,
                indices,
                description=f"{description}, large numbers",
            )
