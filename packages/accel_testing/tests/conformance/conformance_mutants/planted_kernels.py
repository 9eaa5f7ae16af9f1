"""Kernels of a vendor's plugin, made wrong one at a time, by area: no check was written for one of them."""

import functools
import operator

import torch

from conformance_mutants.kernels import replaced

_HALF = (torch.float16, torch.bfloat16)
_LOW, _HIGH = -torch.inf, torch.inf


def _stepwise(a, dim):
    """The sum along a dimension in the type of the numbers, one after the other."""
    return functools.reduce(operator.add, a.movedim(dim, 0).unbind())


def _dims(a, dim):
    dims = [dim] if isinstance(dim, int) else list(dim or range(a.dim()))
    return sorted((d % max(a.dim(), 1) for d in dims), reverse=True)


def _in_half(change):
    """The kernel is whole but for float16 and bfloat16."""
    return lambda op, a, *rest, **more: (
        change(op, a, *rest, **more) if a.dtype in _HALF else op(a, *rest, **more)
    )


def _narrow_sum(op, a, dim=None, keepdim=False, *, dtype=None, mean=False):
    out = a if dtype is None else a.to(dtype)
    for d in _dims(a, dim):
        out = _stepwise(out, d).unsqueeze(d) if out.shape[d] else out.sum(d, keepdim=True)
    out = out if keepdim else out.reshape(op(a, dim, False).shape)
    return out / (a.numel() // max(out.numel(), 1)) if mean else out


def _narrow_mm(op, a, b):
    return _stepwise(a.unsqueeze(-1) * b.unsqueeze(-3), -2)


def _wraps(kinds, narrow=None):
    """Integers of these types are added up in their own type, or in `narrow`."""

    def wrong(op, a, *rest, **more):
        out = op(a, *rest, **more)
        return out.to(narrow or a.dtype).to(out.dtype) if a.dtype in kinds else out

    return wrong


def _given(change):
    """The first tensor is changed before."""
    return lambda op, a, *rest, **more: op(change(a), *rest, **more)


def _second(change):
    return lambda op, a, b, *rest, **more: op(
        a, change(b) if isinstance(b, torch.Tensor) else b, *rest, **more
    )


def _without_nan(value):
    return lambda a: a.nan_to_num(value, _HIGH, _LOW) if a.is_floating_point() else a


def _first_dim(change):
    """Along the first dimension alone."""
    return lambda op, a, dim, *rest, **more: op(
        change(a) if a.dim() > 1 and dim in (0, [0]) else a, dim, *rest, **more
    )


def _last(op, a, dim=None, keepdim=False):
    """The last of equal elements."""
    if dim is None:
        return a.numel() - 1 - op(a.flatten().flip(0), None)
    return a.shape[dim] - 1 - op(a.flip(dim), dim, keepdim)


def _last_of(op, a, dim, keepdim=False):
    values, at = op(a.flip(dim), dim, keepdim)
    return values, a.shape[dim] - 1 - at


def _last_of_long(op, a, *rest, **more):
    return _last(op, a, *rest, **more) if a.numel() > 1000 else op(a, *rest, **more)


def _unstable(op, a, *, stable=None, dim=-1, descending=False):
    values, at = op(a.flip(dim), stable=True, dim=dim, descending=descending)
    return values, a.shape[dim] - 1 - at


def _unstable_descending(op, a, *, stable=None, dim=-1, descending=False):
    return (_unstable if descending else lambda op, *a, **k: op(*a, **k))(
        op, a, stable=stable, dim=dim, descending=descending
    )


def _twice_the_first(op, a, k, dim=-1, largest=True, is_sorted=True):
    values, at = op(a, k, dim, largest, is_sorted)
    return values, a.argsort(dim, descending=largest).narrow(dim, 0, 1).expand_as(at).clone() if k > 1 else at


def _off(op, a, *rest, **more):
    values, at = op(a, *rest, **more)
    return values, (at + 1) % max(a.shape[rest[-2] if len(rest) > 2 else rest[0]] if a.dim() else 1, 1)


def _upper(op, a, dim, keepdim=False):
    values, at = a.sort(dim)
    return tuple(each.narrow(dim, a.shape[dim] // 2, 1).squeeze(dim) for each in (values, at))


def _lose_add(op, a, dim, index, source, *, alpha=1):
    return a.index_copy(dim, index, a.index_select(dim, index) + alpha * source)


def _lose_scatter(op, a, dim, index, source):
    return a.scatter(dim, index, a.gather(dim, index) + source)


def _lose_put(op, a, at, values, accumulate=False, unsafe=False):
    if not accumulate:
        return op(a, at, values, accumulate, unsafe)
    return op(a, at, a[tuple(slice(None) if i is None else i for i in at)] + values, False, unsafe)


def _lose_embedding(op, grad, indices, count, *_):
    out = grad.new_zeros(count, grad.shape[-1])
    out[indices.flatten()] = grad.reshape(-1, grad.shape[-1])
    return out


def _many(change):
    """Wrong from two thousand indices on."""
    return lambda op, a, *rest, **more: (
        change(op, a, *rest, **more)
        if any(isinstance(each, torch.Tensor) and each.numel() > 2000 for each in (a, *rest))
        else op(a, *rest, **more)
    )


def _through(dtype, kinds):
    def wrong(op, a, *rest, **more):
        if a.dtype not in kinds:
            return op(a, *rest, **more)
        rest = [r.to(dtype) if isinstance(r, torch.Tensor) and r.dtype is a.dtype else r for r in rest]
        return op(a.to(dtype), *rest, **more).to(a.dtype)

    return wrong


def _grid(most):
    """What lies beyond so many rows is not computed."""

    def wrong(op, a, *rest, **more):
        out = op(a, *rest, **more)
        first = out[0] if isinstance(out, tuple) else out
        if first.dim() and first.shape[0] > most:
            first[most:] = 0
        return out

    return wrong


_SMALL = (torch.int8, torch.uint8, torch.int16, torch.int32)
_INT32, _INT64 = (torch.int32,), (torch.int64,)

WIDTH = {
    "int32 is added up in int32": ("sum.dim_IntList", _wraps(_INT32)),
    "int8 is added up in int8": ("sum.dim_IntList", _wraps((torch.int8,))),
    "uint8 is added up in int16": ("sum.dim_IntList", _wraps((torch.uint8,), torch.int16)),
    "bool is added up in uint8": ("sum.dim_IntList", _wraps((torch.bool,), torch.uint8)),
    "int64 is added up in float64": ("sum.dim_IntList", _through(torch.float64, _INT64)),
    "the sum of int32 is of int32": (
        "sum.dim_IntList",
        lambda op, a, *r, **m: op(a, *r, **m).to(a.dtype if a.dtype is torch.int32 else op(a, *r, **m).dtype),
    ),
    "int32 is added up in int32, cumsum": ("cumsum", _wraps(_INT32)),
    "products of int32 in int32": ("prod", _wraps(_INT32)),
    "half in half, sum": ("sum.dim_IntList", _in_half(_narrow_sum)),
    "half in half, mean": ("mean.dim", _in_half(functools.partial(_narrow_sum, mean=True))),
    "half in half, cumsum": (
        "cumsum",
        _in_half(lambda op, a, dim, **_: torch.stack([*_running(a.movedim(dim, 0))]).movedim(0, dim)),
    ),
    "half in half, dot": ("dot", _in_half(lambda op, a, b: _stepwise(a * b, 0))),
    "half in half, norm": (
        "linalg_vector_norm",
        _in_half(lambda op, a, p=2, dim=None, keepdim=False, **_: _narrow_sum(
            torch.ops.aten.sum.dim_IntList, a * a, dim, keepdim
        ).sqrt() if p == 2 else op(a, p, dim, keepdim)),
    ),
    "half in half, softmax": (
        "_softmax",
        _in_half(
            lambda op, a, dim, _: (e := (a - a.amax(dim, True)).exp()) / _stepwise(e, dim).unsqueeze(dim)),
    ),
    "half in half, mm": ("mm", _in_half(_narrow_mm)),
    "half in half, bmm": ("bmm", _in_half(_narrow_mm)),
    "half in half, addmm": ("addmm", _in_half(lambda op, c, a, b, **_: c + _narrow_mm(op, a, b))),
    "half in half, variance": (
        "var.correction",
        _in_half(lambda op, a, dim=None, *, correction=1, keepdim=False: (
            (a - a.mean(dim, True)) ** 2).cumsum(-1).amax() / a.numel() if a.numel() > 300 else op(
                a, dim, correction=correction, keepdim=keepdim)),
    ),
}  # fmt: skip


def _running(rows):
    total = rows[0]
    yield total
    for row in rows[1:]:
        total = total + row
        yield total


NAN = {
    "max of all": ("max", _given(_without_nan(_LOW))),
    "min of all": ("min", _given(_without_nan(_HIGH))),
    "max along a dimension": ("max.dim", _given(_without_nan(_LOW))),
    "min along a dimension": ("min.dim", _given(_without_nan(_HIGH))),
    "amax": ("amax", _given(_without_nan(_LOW))),
    "amax along the first": ("amax", _first_dim(_without_nan(_LOW))),
    "amin": ("amin", _given(_without_nan(_HIGH))),
    "aminmax": ("aminmax", _given(_without_nan(0.0))),
    "argmax": ("argmax", _given(_without_nan(_LOW))),
    "argmin": ("argmin", _given(_without_nan(_HIGH))),
    "argmin of half": ("argmin", _in_half(_given(_without_nan(_HIGH)))),
    "median": ("median", _given(_without_nan(_HIGH))),
    "median along a dimension": ("median.dim", _given(_without_nan(_HIGH))),
    "sort": ("sort.stable", lambda op, a, **m: _nan_first(op, a, **m)),
    "topk": ("topk", _given(_without_nan(_LOW))),
    "cummax": ("_cummax_helper", lambda op, a, values, at, dim: op(_without_nan(_LOW)(a), values, at, dim)),
    "maximum, the second": ("maximum", _second(_without_nan(_LOW))),
    "minimum": ("minimum", _given(_without_nan(_HIGH))),
    "clamp by a tensor": ("clamp.Tensor", _given(_without_nan(0.0))),
    "clamp_min": ("clamp_min", _given(_without_nan(0.0))),
    "norm": ("linalg_vector_norm", _given(_without_nan(0.0))),
    "infinity norm": (
        "linalg_vector_norm",
        lambda op, a, p=2, *r, **m: op(a.nan_to_num(0.0) if p == torch.inf else a, p, *r, **m),
    ),
    "all": ("all", _given(_without_nan(0.0))),
    "any": ("any", _given(_without_nan(0.0))),
    "all along a dimension": ("all.dim", _given(_without_nan(0.0))),
    "product": ("prod", _given(_without_nan(1.0))),
    "variance": ("var.correction", _given(_without_nan(0.0))),
    "sum along the first": ("sum.dim_IntList", _first_dim(_without_nan(0.0))),
    "sum of half": ("sum.dim_IntList", _in_half(_given(_without_nan(0.0)))),
    "nansum": ("nansum", lambda op, a, *r, **m: a.sum(*r, **m)),
    "kthvalue": ("kthvalue", _given(_without_nan(_LOW))),
    "fmax": ("fmax", lambda op, a, b: torch.maximum(a, b)),
}  # fmt: skip


def _nan_first(op, a, *, stable=None, dim=-1, descending=False):
    _, at = op(_without_nan(_LOW)(a), stable=True, dim=dim, descending=descending)
    return a.gather(dim, at), at


TIES = {
    "argmax": ("argmax", _last),
    "argmax of a long row": ("argmax", _last_of_long),
    "argmin": ("argmin", _last),
    "argmin along the first": (
        "argmin",
        lambda op, a, dim=None, keepdim=False: (
            _last if dim == 0 else lambda op, *a: op(*a))(op, a, dim, keepdim),
    ),
    "argmax of integers": (
        "argmax",
        lambda op, a, *r, **m: op(a, *r, **m) if a.is_floating_point() else _last(op, a, *r, **m),
    ),
    "max": ("max.dim", _last_of),
    "min": ("min.dim", _last_of),
    "stable sort": ("sort.stable", _unstable),
    "stable sort, descending": ("sort.stable", _unstable_descending),
    "topk gives one place twice": ("topk", _twice_the_first),
    "median, the upper": ("median.dim", _upper),
    "median, its place": ("median.dim", _off),
    "mode, its place": ("mode", _off),
    "mode, the rarest": (
        "mode",
        lambda op, a, dim=-1, keepdim=False: (op(a, dim, keepdim)[0] * 0 + a.amax(dim), a.argmax(dim)),
    ),
    "unique, not sorted": (
        "_unique2",
        lambda op, a, *r, **m: (lambda v, i, c: (v.flip(0), len(v) - 1 - i, c.flip(0)))(*op(a, *r, **m)),
    ),
    "unique, counts": (
        "_unique2", lambda op, a, *r, **m: (*op(a, *r, **m)[:2], op(a, *r, **m)[2].clamp(max=1))),
    "unique, where they are": ("_unique2", lambda op, a, *r, **m: (
        op(a, *r, **m)[0], op(a, *r, **m)[1].flip(0), op(a, *r, **m)[2])),
    "bucketize on the other side": (
        "bucketize.Tensor",
        lambda op, a, b, *, right=False, **m: op(a, b, right=not right, **m),
    ),
    "kthvalue, its place": ("kthvalue", _off),
}  # fmt: skip

DUPLICATES = {
    "index_add": ("index_add", _lose_add),
    "index_add, many": ("index_add", _many(_lose_add)),
    "index_add, alpha": ("index_add", lambda op, a, dim, at, src, *, alpha=1: op(a, dim, at, src)),
    "index_add of int64 in float32": (
        "index_add", lambda op, a, dim, at, src, **m: op(a.float(), dim, at, src.float(), **m).to(a.dtype),
    ),
    "scatter_add": ("scatter_add", _lose_scatter),
    "scatter_add, many": ("scatter_add", _many(_lose_scatter)),
    "scatter_add along the first": (
        "scatter_add",
        lambda op, a, dim, at, src: (_lose_scatter if dim == 0 and a.dim() > 1 else lambda op, *r: op(*r))(
            op, a, dim, at, src
        ),
    ),
    "index_put": ("_index_put_impl_", _lose_put),
    "index_put of two indices": (
        "_index_put_impl_",
        lambda op, a, at, *r: (_lose_put if len(at) > 1 else lambda op, *x: op(*x))(op, a, at, *r),
    ),
    "gradient of embedding": ("embedding_dense_backward", _lose_embedding),
    "gradient of embedding, padding": (
        "embedding_dense_backward", lambda op, g, i, n, pad, scale: op(g, i, n, -1, scale),
    ),
    "gradient of embedding, by frequency": (
        "embedding_dense_backward", lambda op, g, i, n, pad, scale: op(g, i, n, pad, False),
    ),
    "gradient of embedding in half": ("embedding_dense_backward", _in_half(_lose_embedding)),
    "bincount": ("bincount", lambda op, a, weights=None, minlength=0: op(a, None, minlength).clamp(max=1)),
    "bincount, many": (
        "bincount",
        lambda op, a, weights=None, minlength=0: op(a, weights, minlength).clamp(max=1000),
    ),
    "bincount, weights": ("bincount", lambda op, a, weights=None, minlength=0: op(a, None, minlength)),
    "histc, the last edge": (
        "histc", lambda op, a, bins=100, low=0, top=0: op(a[a < top] if top else a, bins, low, top),
    ),
    "scatter_reduce, amax without itself": (
        "scatter_reduce.two", lambda op, a, dim, at, src, reduce, *, include_self=True: op(
            a, dim, at, src, reduce, include_self=False),
    ),
    "scatter_reduce, sum": (
        "scatter_reduce.two", lambda op, a, dim, at, src, reduce, **m: (
            _lose_scatter(op, a, dim, at, src) if reduce == "sum" else op(a, dim, at, src, reduce, **m)),
    ),
}  # fmt: skip


def _no_broadcast(op, a, b, **more):
    return op(a, b.flatten()[: 1].expand_as(a) if isinstance(b, torch.Tensor) and b.dim() == a.dim() == 2
              and b.shape != a.shape and b.shape[0] == 1 else b, **more)  # fmt: skip


OTHER = {
    "add of a row": ("add.Tensor", _no_broadcast),
    "mul of integers and floats": (
        "mul.Tensor",
        lambda op, a, b: op(a, b.to(a.dtype)) if isinstance(b, torch.Tensor) and b.is_floating_point() and not
        a.is_floating_point() else op(a, b),
    ),
    "division of integers cuts": (
        "div.Tensor_mode", lambda op, a, b, *, rounding_mode: op(a, b, rounding_mode="trunc"),
    ),
    "remainder has the sign of the first": ("remainder.Scalar", lambda op, a, b: torch.fmod(a, b)),
    "remainder of tensors has the sign of the first": ("remainder.Tensor", lambda op, a, b: torch.fmod(a, b)),
    "int32 saturates": (
        "mul.Tensor",
        lambda op, a, b: (a.long() * b).clamp(-(2**31), 2**31 - 1).int() if a.dtype is torch.int32 and not (
            isinstance(b, torch.Tensor) and b.dtype is not torch.int32) else op(a, b),
    ),
    "-0.0 is 0.0, neg": ("neg", lambda op, a: op(a) + 0.0 if a.is_floating_point() else op(a)),
    "signbit of -0.0": ("signbit", lambda op, a: a < 0),
    "copysign of -0.0": ("copysign.Tensor", lambda op, a, b: op(a, b + 0.0)),
    "sqrt of -0.0": ("sqrt", lambda op, a: op(a + 0.0)),
    "pow of a negative base": ("pow.Tensor_Scalar", lambda op, a, b: op(a.abs(), b) if b % 1 else (
        a.abs() ** b if a.is_floating_point() else op(a, b))),
    "atan2 forgets the quadrant": ("atan2", lambda op, a, b: (a / b).atan()),
    "many rows of softmax": ("_softmax", _grid(65535)),
    "many rows of a sum": ("sum.dim_IntList", _grid(65535)),
    "many rows of cumsum": ("cumsum", _grid(65535)),
    "many rows of layer_norm": ("native_layer_norm", _grid(65535)),
    "many products": ("bmm", _grid(65535)),
    "a long sum": ("add.Tensor", _grid(1 << 20)),
    "a copy of a transposed tensor": (
        "clone", lambda op, a, **m: op(a, **m) if a.is_contiguous() else op(a.T.contiguous().T, **m) * 1.0001,
    ),
    "add in place forgets alpha": ("add_.Tensor", lambda op, a, b, *, alpha=1: op(a, b)),
    "mul in place of a view": (
        "mul_.Tensor", lambda op, a, b: op(a, b) if a.is_contiguous() else a,
    ),
    "where takes the wrong type": (
        "where.self", lambda op, c, a, b: op(c, a, b.to(a.dtype)) if a.dim() else op(c, a, b),
    ),
    "tril by one": ("tril", lambda op, a, diagonal=0: op(a, 0)),
    "roll the other way": ("roll", lambda op, a, shifts, dims=(): op(a, [-s for s in shifts], dims)),
    "flip of one dimension": ("flip", lambda op, a, dims: op(a, dims[:1])),
    "variance is not corrected": (
        "var.correction", lambda op, a, dim=None, *, correction=1, keepdim=False: op(
            a, dim, correction=0, keepdim=keepdim),
    ),
    "layer_norm forgets eps": (
        "native_layer_norm", lambda op, a, shape, weight, bias, eps: op(a, shape, weight, bias, 0.0),
    ),
    "convolution forgets its groups' order": (
        "convolution", lambda op, a, w, b, *r: op(a, w.flip(0) if r[-1] > 1 else w, b, *r),
    ),
    "convolution forgets its bias": ("convolution", lambda op, a, w, b, *r: op(a, w, None, *r)),
    "bitwise shift is logical": (
        "bitwise_right_shift.Tensor_Scalar", lambda op, a, b: op(a.abs(), b),
    ),
    "round half away from zero": ("round", lambda op, a: (a.abs() + 0.5).floor() * a.sign()),
    "masked_fill with a half mask": (
        "masked_fill.Scalar", lambda op, a, mask, value: op(a, mask, 0.0 if value == -torch.inf else value),
    ),
    "dropout does not scale": (
        "native_dropout", lambda op, a, p, train: (op(a, p, train)[0] * (1 - p), op(a, p, train)[1]),
    ),
    "bernoulli gives all": ("bernoulli_.float", lambda op, a, p=0.5, **m: a.fill_(1)),
    "rand reaches beyond one": ("uniform_", lambda op, a, low=0, high=1, **m: op(a, low, high).mul_(1.1)),
    "randn is half as wide": ("normal_", lambda op, a, mean=0, std=1, **m: op(a, mean, std / 2)),
    "randperm takes one twice": ("randperm.generator_out", lambda op, n, **m: m["out"].zero_()),
    "a number of no dimension": (
        "sum.dim_IntList", lambda op, a, *r, **m: op(a, *r, **m) * (0 if not a.dim() else 1),
    ),
    "gradient of relu at zero": (
        "threshold_backward", lambda op, g, a, t: op(g, a + 1e-6, t),
    ),
    "index of what is negative": (
        "index.Tensor", lambda op, a, at: op(a, [i.clamp(min=0) if i is not None and i.dtype is torch.int64
                                                  else i for i in at]),
    ),
    "cat of different types": (
        "cat", lambda op, t, dim=0: op([x.to(t[0].dtype) for x in t], dim),
    ),
    "comparison of int64 in float": ("ge.Scalar", lambda op, a, b: op(a.float(), b)),
    "arange by float32": (
        "arange.start_out", lambda op, a, b, step=1, *, out: op(a, b, step, out=out).copy_(
            torch.arange(a, b, step).float()) if b > 2**24 else op(a, b, step, out=out),
    ),
}  # fmt: skip

AREAS = {"width": WIDTH, "NaN": NAN, "equal elements": TIES, "duplicates": DUPLICATES, "other kernels": OTHER}
KERNELS = {
    f"{area}: {name}": (area, replaced(op, wrong))
    for area, rows in AREAS.items()
    for name, (op, wrong) in rows.items()
}
