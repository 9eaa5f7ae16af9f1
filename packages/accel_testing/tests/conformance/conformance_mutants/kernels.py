"""Kernels of the simulated device, broken one at a time in the ways in which kernels are."""

import contextlib
import functools

import torch
from torch.utils import _pytree as pytree


def _each(change):
    return lambda values: [
        change(v) if isinstance(v, torch.Tensor) else v for v in values
    ]


def _floating(change):
    return _each(lambda t: change(t) if t.is_floating_point() and t.numel() else t)


def _as_if_contiguous(tensor):
    """The numbers in the order of the memory, whatever the strides say."""
    if tensor.is_contiguous() or tensor.dim() < 2 or 0 in tensor.stride():
        return tensor
    room = (
        tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset()
    )
    if room < tensor.numel():
        return tensor
    return torch.as_strided(
        tensor,
        tensor.shape,
        torch.empty(tensor.shape).stride(),
        tensor.storage_offset(),
    )


def _without_tail(tensor):
    """Of a last dimension longer than 1,024 what does not fill a block of 128 is left out."""
    size = tensor.shape[-1] if tensor.dim() else 0
    if size <= 1024 or size % 128 == 0:
        return tensor
    tensor = tensor.clone()
    tensor[..., size - size % 128 :] = 0
    return tensor


def _refuses_empty(values):
    if any(isinstance(v, torch.Tensor) and not v.numel() for v in values):
        raise RuntimeError("invalid configuration argument: 0 blocks")
    return values


def _through_float(tensor):
    return (
        tensor.to(torch.float32).to(tensor.dtype)
        if tensor.dtype in (torch.int32, torch.int64)
        else tensor
    )


#: Kinds by name: of what goes in, of what comes out.
NAN = ("NaN is 0", _floating(lambda t: t.nan_to_num(0.0, torch.inf, -torch.inf)), None)
INF = (
    "inf is the largest number",
    _floating(
        lambda t: t.nan_to_num(
            torch.nan, torch.finfo(t.dtype).max, torch.finfo(t.dtype).min
        )
    ),
    None,
)
STRIDES = ("reads memory in its order", _each(_as_if_contiguous), None)
TAIL = ("the rest of a long row is left out", _each(_without_tail), None)
EMPTY = ("nothing in it is an error", _refuses_empty, None)
ROUNDED = (
    "computes in bfloat16",
    _floating(lambda t: t.to(torch.bfloat16).to(t.dtype)),
    None,
)
FLOAT = ("integers go through float32", _each(_through_float), None)
ZERO = ("gives the right shape, and zeros", None, _each(torch.zeros_like))
OTHER_DEVICE = ("works on the first device alone", None, None)

FLOATING = (NAN, INF, STRIDES, ROUNDED)
NUMBERS = (*FLOATING, FLOAT)

#: Which kernels are broken, and how.
_WAYS = {
    "add.Tensor": (*NUMBERS, EMPTY, OTHER_DEVICE),
    "mul.Tensor": (*NUMBERS, EMPTY),
    "div.Tensor": (NAN, INF, ROUNDED),
    **dict.fromkeys(("div.Tensor_mode", "remainder.Tensor", "lt.Scalar", "bitwise_and.Tensor"), (FLOAT,)),
    **dict.fromkeys(("maximum", "eq.Tensor"), (NAN, FLOAT)),
    **dict.fromkeys(("clamp", "relu", "max_pool2d_with_indices"), (NAN, STRIDES)),
    **dict.fromkeys(("exp", "log", "sqrt", "sigmoid", "tanh", "gelu"), (NAN, ROUNDED)),
    "gelu_backward": (ROUNDED, STRIDES, ZERO),
    "gt.Tensor": (FLOAT, STRIDES),
    **dict.fromkeys(("where.self", "index.Tensor", "gather", "index_select", "cat"), (STRIDES, FLOAT)),
    **dict.fromkeys(("masked_fill.Scalar", "nonzero"), (STRIDES,)),
    "sum.dim_IntList": (NAN, INF, STRIDES, TAIL, ROUNDED, FLOAT, EMPTY),
    "mean.dim": (NAN, TAIL, ROUNDED),
    **dict.fromkeys(("amax", "max.dim"), (NAN, TAIL, FLOAT)),
    "argmax": (NAN, TAIL, FLOAT, STRIDES),
    "cumsum": (TAIL, FLOAT, STRIDES),
    "sort.stable": (FLOAT, TAIL, STRIDES),
    "topk": (TAIL, FLOAT),
    "mm": (NAN, STRIDES, TAIL, ROUNDED, EMPTY, OTHER_DEVICE),
    "bmm": (STRIDES, ROUNDED, EMPTY),
    "addmm": (STRIDES, TAIL, ROUNDED),
    "_softmax": (INF, TAIL, ROUNDED, STRIDES),
    "_log_softmax": (TAIL, ROUNDED),
    "native_layer_norm": (TAIL, ROUNDED, STRIDES),
    "embedding_dense_backward": (ZERO, ROUNDED),
    **dict.fromkeys(("nll_loss_forward", "_foreach_mul_.Scalar", "_foreach_add_.List"), (ROUNDED,)),
    "isnan": (ZERO,),
    "native_batch_norm": (ROUNDED, STRIDES),
    "_amp_foreach_non_finite_check_and_unscale_": (NAN, INF),
}  # fmt: skip


@contextlib.contextmanager
def _broken(op, before, after, *, first_alone):
    """While the block runs the device's kernel of that operator is broken."""
    library = torch.library.Library("aten", "IMPL")
    library.impl(
        op.name().removeprefix("aten::"),
        functools.partial(_run, op, before, after, first_alone),
        "PrivateUse1",
    )
    try:
        yield
    finally:
        library._destroy()


def _run(op, before, after, first_alone, *args, **kwargs):
    flat, how = pytree.tree_flatten((args, kwargs))
    theirs = [
        each
        for each in flat
        if isinstance(each, torch.Tensor) and each.device.type == "acme"
    ]
    there = theirs[0].device if theirs else torch.device("acme")
    if first_alone and there.index:
        raise RuntimeError("an illegal memory access was encountered")
    host = [_on_host(each) for each in flat]
    given = before(host) if before else host
    out, shape = pytree.tree_flatten(_called(op, *pytree.tree_unflatten(given, how)))
    results = []
    for each in after(out) if after else out:
        # What is written in place, as it is returned, or as the kernel has left it.
        place = next(
            (
                n
                for n, h in enumerate(given)
                if h is each and isinstance(h, torch.Tensor)
            ),
            None,
        )
        results.append(each if place is None else flat[place])
    writes = any(a.alias_info and a.alias_info.is_write for a in op._schema.arguments)
    for ours, now, was in zip(flat, given, host, strict=True):
        if writes and isinstance(ours, torch.Tensor) and ours.device.type == "acme":
            ours.copy_(now) if now.shape == ours.shape else was
    return pytree.tree_unflatten(
        [
            r.to(there) if isinstance(r, torch.Tensor) and r.device.type == "cpu" else r
            for r in results
        ],
        shape,
    )


def _called(op, args, kwargs):
    with torch.no_grad():
        return op(*args, **kwargs)


def _on_host(value):
    if isinstance(value, torch.Tensor) and value.device.type == "acme":
        if value.is_contiguous() or not value.numel():
            return value.detach().cpu()
        # With its strides, and what lies between.
        room = (
            value.untyped_storage().nbytes() // value.itemsize - value.storage_offset()
        )
        flat = torch.as_strided(
            value.detach(), (room,), (1,), value.storage_offset()
        ).cpu()
        return torch.as_strided(flat, value.shape, value.stride())
    if isinstance(value, torch.device) and value.type == "acme":
        return torch.device("cpu")
    return value


def _overload(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _all():
    return {
        name: [
            (
                kind,
                functools.partial(
                    _broken,
                    _overload(name),
                    before,
                    after,
                    first_alone=kind is OTHER_DEVICE[0],
                ),
            )
            for kind, before, after in ways
        ]
        for name, ways in _WAYS.items()
        if ways
    }


KERNELS = _all()
