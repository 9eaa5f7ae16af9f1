"""Arguments of torch.distributed's calls to a process group: lists, options, splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import UnsupportedError

__all__ = ["listed", "options", "reduce_op", "require_dense", "require_parts", "split_sizes"]


def listed(tensors: Any) -> list[Tensor]:
    """A list of tensors, from one or several."""
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def options(kind: Any, given: Any, op: Any = None) -> Any:
    """Gloo's options of that kind: what the caller's say, and of operations `op` alone."""
    made = kind()
    if op is not None:
        made.reduceOp = op
    for name in ("timeout", "rootRank", "rootTensor"):
        if hasattr(made, name) and hasattr(given, name):
            setattr(made, name, getattr(given, name))
    return made


def reduce_op(given: Any) -> Any:
    """The operation, from options or as it is; a sum where nothing says it."""
    return getattr(given, "reduceOp", given) if given is not None else torch.distributed.ReduceOp.SUM


def require_dense(tensors: Iterable[Tensor]) -> None:
    """Raise `UnsupportedError` for a sparse tensor."""
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise UnsupportedError(
                f"a tensor of layout {tensor.layout} cannot be staged through host memory, expected a dense "
                "one: give tensor.to_dense(), or for gradients an Embedding with sparse=False"
            )


def require_parts(whole: int, part: int, size: int) -> None:
    """Raise `ValueError` where `whole` is not `size` times `part`."""
    if whole != part * size:
        raise ValueError(f"{size} parts of {part} do not make {whole}: expected {part * size} in all")


def split_sizes(tensor: Tensor, rows: list[int], size: int) -> list[int]:
    """The bytes for each rank, of whom `rows` says how much of dimension 0; equal parts where it is empty.

    Raises `ValueError` where the parts do not make the tensor.
    """
    length = tensor.shape[0] if tensor.dim() else 0
    if not rows:
        if length % size:
            raise ValueError(f"dimension 0 is {length}, expected a multiple of the {size} ranks, or splits")
        rows = [length // size] * size
    if len(rows) != size or sum(rows) != length:
        raise ValueError(f"splits {rows} do not make dimension 0, which is {length}, for {size} ranks")
    row = tensor.nbytes // length if length else 0
    return [count * row for count in rows]
