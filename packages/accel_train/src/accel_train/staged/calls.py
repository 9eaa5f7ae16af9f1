"""Read the arguments that torch.distributed passes to a process group: lists, options and splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import UnsupportedError

__all__ = [
    "gloo_options",
    "reduce_op",
    "require_dense",
    "require_parts",
    "split_sizes",
    "tensor_list",
]


def tensor_list(tensors: Any) -> list[Tensor]:
    """Return `tensors`, a single tensor or several tensors, as a list."""
    if isinstance(tensors, Tensor):
        return [tensors]
    return list(tensors)


def gloo_options(options_class: Any, torch_options: Any, op: Any = None) -> Any:
    """Return an instance of gloo's `options_class` with the timeout and root rank that torch passed.

    `torch_options` are the options that torch passed. `op` is the reduce operation, for option classes that
    have one.
    """
    options = options_class()
    if op is not None:
        options.reduceOp = op
    for name in ("timeout", "rootRank", "rootTensor"):
        if hasattr(options, name) and hasattr(torch_options, name):
            setattr(options, name, getattr(torch_options, name))
    return options


def reduce_op(op_or_options: Any) -> Any:
    """Return the reduce operation that torch passed, either directly or in options. The default is a sum."""
    if op_or_options is None:
        return torch.distributed.ReduceOp.SUM
    if hasattr(op_or_options, "reduceOp"):
        return op_or_options.reduceOp
    return op_or_options


def require_dense(tensors: Iterable[Tensor]) -> None:
    """Raise `UnsupportedError` if any of `tensors` is sparse."""
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise UnsupportedError(
                f"a tensor of layout {tensor.layout} cannot be staged through host memory; expected a dense "
                "tensor. Pass tensor.to_dense(), or, for gradients, create the Embedding with sparse=False."
            )


def require_parts(total: int, part_size: int, parts: int, unit: str) -> None:
    """Raise `ValueError` unless a tensor's size `total` equals `parts` times `part_size`.

    `unit` is the unit of both sizes for the error message: `"elements"` or `"bytes"`.
    """
    expected = part_size * parts
    if total != expected:
        raise ValueError(
            f"the tensor has {total} {unit}, expected {expected} (number of parts: {parts}, size of each "
            f"part: {part_size})"
        )


def split_sizes(tensor: Tensor, row_counts: list[int], ranks: int) -> list[int]:
    """Return the size in bytes of each rank's part of `tensor`, which is split along dimension 0.

    `row_counts` contains the number of rows in each rank's part; if it is empty, the parts are equal. Raises
    `ValueError` if the parts do not add up to the tensor.
    """
    length = tensor.shape[0] if tensor.dim() else 0
    if not row_counts:
        # Without explicit splits, all ranks get the same number of rows.
        if length % ranks:
            raise ValueError(
                f"dimension 0 has the size {length}, expected a multiple of the number of ranks, {ranks}, or "
                "explicit splits"
            )
        row_counts = [length // ranks] * ranks
    if len(row_counts) != ranks or sum(row_counts) != length:
        raise ValueError(
            f"the splits {row_counts} for {ranks} ranks do not add up to {length}, the size of dimension 0"
        )
    if length == 0:
        return [0] * ranks
    row_bytes = tensor.nbytes // length
    return [count * row_bytes for count in row_counts]
