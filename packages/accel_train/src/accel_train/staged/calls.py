"""Read the arguments of torch.distributed's calls to a process group: lists, options, splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import UnsupportedError

__all__ = [
    "listed",
    "options",
    "reduce_op",
    "require_dense",
    "require_parts",
    "split_sizes",
]


def listed(tensors: Any) -> list[Tensor]:
    """Return a list of tensors, from one or several."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def options(kind: Any, given: Any, op: Any = None) -> Any:
    """Return gloo's options of class `kind`, with the values that `given` has, and the operation `op`."""
    made = kind()
    if op is not None:
        made.reduceOp = op
    for name in ("timeout", "rootRank", "rootTensor"):
        if hasattr(made, name) and hasattr(given, name):
            setattr(made, name, getattr(given, name))
    return made


def reduce_op(given: Any) -> Any:
    """Return the reduce operation, given itself or in options; a sum if none is given."""
    return (
        getattr(given, "reduceOp", given)
        if given is not None
        else torch.distributed.ReduceOp.SUM
    )


def require_dense(tensors: Iterable[Tensor]) -> None:
    """Raise `UnsupportedError` for a sparse tensor."""
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise UnsupportedError(
                f"a tensor of layout {tensor.layout} cannot be staged through host memory, expected a dense "
                "tensor: pass tensor.to_dense(), or for gradients use an Embedding with sparse=False"
            )


def require_parts(whole: int, part: int, size: int) -> None:
    """Raise `ValueError` unless `whole` is `size` times `part`."""
    if whole != part * size:
        raise ValueError(
            f"{size} parts of {part} do not add up to {whole}: expected {part * size} in all"
        )


def split_sizes(tensor: Tensor, rows: list[int], size: int) -> list[int]:
    """Return the bytes for each rank; `rows` has its share of dimension 0, or is empty for equal parts.

    Raises `ValueError` if the parts do not add up to the tensor.
    """
    length = tensor.shape[0] if tensor.dim() else 0
    if not rows:
        if length % size:
            raise ValueError(
                f"dimension 0 is {length}, expected a multiple of the {size} ranks, or splits"
            )
        rows = [length // size] * size
    if len(rows) != size or sum(rows) != length:
        raise ValueError(
            f"splits {rows} for {size} ranks do not add up to dimension 0, which is {length}"
        )
    row = tensor.nbytes // length if length else 0
    return [count * row for count in rows]
