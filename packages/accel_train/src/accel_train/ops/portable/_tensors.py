"""Shared parts of the portable operators: check tensors, group them, and convert them to one precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import OpInputError
from accel_train.ops.arguments import (
    check_rates,
    require_tensor,
    require_writable,
    whole,
)

__all__ = ["corrections", "update_in_groups"]

#: Elements that pass through all operations of an update before the next ones do, on the CPU. In float32 they
#: and what is computed from them are 7 MiB, which stay in its caches; of a large tensor as a whole every
#: operation fetches all from memory. Adam by `foreach` on 10 million elements takes 10 ms so, and 26 ms at
#: once (two cores of an EPYC of family 26; 2^17 to 2^20 elements hardly differ). No bit depends on it.
_PIECE = 2**18
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def update_in_groups(
    op: str,
    lists: Mapping[str, Sequence[Tensor]],
    update: Callable[..., None],
    *,
    elementwise: bool = True,
    fused: Callable[..., None] | None = None,
) -> None:
    """Call `update(gradients, parameters, *states)` with lists of tensors that `torch._foreach_*` accepts.

    `lists` has the gradients first; they are only read, and the others are updated in place. Tensors at the
    same index belong together: they are on one device and have the same number of elements. Computation is in
    float32, or in float64 for float64 parameters. Tensors of that precision are passed unchanged, grouped by
    device. Other tensors are converted for one parameter at a time, so that the copies stay small. Empty
    tensors are skipped. `elementwise`: `update` gets CPU tensors in pieces. `fused` gets the rows that
    torch's fused kernels take: on the CPU, and all of one type, whichever it is.

    Raises `OpInputError`, before anything is changed, for tensors that do not match. Raises it also for
    anything that is not a tensor, is sparse, is not floating point, or would be updated but repeats elements.
    """
    together = zip(*lists.values(), strict=True)
    rows = [
        _checked(op, index, lists, tensors) for index, tensors in enumerate(together)
    ]
    rows = [row for row in rows if row[0].numel()]
    with torch.no_grad():
        if fused is not None:
            fusable = [row for row in rows if _is_fusable(row)]
            rows = [row for row in rows if not _is_fusable(row)]
            if fusable:
                _update_fused(fusable, fused)
        _update_rows(rows, update, elementwise)


def _is_fusable(row: list[Tensor]) -> bool:
    """Whether torch's fused kernels for the CPU take these tensors, which they want of one type."""
    first = row[0]
    return first.device.type == "cpu" and all(
        tensor.dtype == first.dtype for tensor in row
    )


def _update_fused(rows: list[list[Tensor]], fused: Callable[..., None]) -> None:
    """Call `fused` with contiguous tensors, of which torch's kernels take the memory as it lies."""
    dense = [[tensor.contiguous() for tensor in row] for row in rows]
    fused(*map(list, zip(*dense, strict=True)))
    for row, copies in zip(rows, dense, strict=True):
        for tensor, copy in zip(row[1:], copies[1:], strict=True):
            if copy is not tensor:
                tensor.copy_(copy)
            elif not tensor.is_inference():
                # The kernels of torch 2.13 do not say that they change a tensor.
                torch.autograd.graph.increment_version(tensor)


def _update_rows(
    rows: Iterable[list[Tensor]], update: Callable[..., None], elementwise: bool
) -> None:
    groups: dict[Any, list[list[Tensor]]] = {}
    for row in rows:
        wide = torch.float64 if row[1].dtype == torch.float64 else torch.float32
        in_pieces = elementwise and row[0].device.type == "cpu"
        if not all(tensor.dtype == wide for tensor in row):
            for piece in _pieces(row) if in_pieces else [row]:
                _update_widened(piece, wide, update)
        else:
            groups.setdefault((row[0].device, wide, in_pieces), []).append(row)
    for (_, _, in_pieces), group in groups.items():
        for batch in _batches(group) if in_pieces else [group]:
            update(*map(list, zip(*batch, strict=True)))


def _pieces(row: list[Tensor]) -> Iterator[list[Tensor]]:
    """A row of large tensors as rows of views of `_PIECE` elements; a row as it is where it has no such."""
    if row[0].numel() <= _PIECE or not all(tensor.is_contiguous() for tensor in row):
        yield row
    else:
        yield from map(
            list,
            zip(*(torch.split(tensor.view(-1), _PIECE) for tensor in row), strict=True),
        )


def _batches(rows: Iterable[list[Tensor]]) -> Iterator[list[list[Tensor]]]:
    """Rows, or pieces of them, that have `_PIECE` elements together, or little more."""
    batch: list[list[Tensor]] = []
    count = 0
    for row in rows:
        for piece in _pieces(row):
            batch.append(piece)
            count += piece[0].numel()
            if count >= _PIECE:
                yield batch
                batch, count = [], 0
    if batch:
        yield batch


def _update_widened(
    row: list[Tensor], wide: torch.dtype, update: Callable[..., None]
) -> None:
    copies = [tensor.to(wide) for tensor in row]
    update(*([copy] for copy in copies))
    for tensor, copy in zip(row[1:], copies[1:], strict=True):
        if copy is not tensor:
            tensor.copy_(copy)


def _checked(
    op: str, index: int, names: Mapping[str, Any], tensors: Sequence[Tensor]
) -> list[Tensor]:
    """The tensors of one parameter, in one shape."""
    first = tensors[0]
    for name, tensor in zip(names, tensors, strict=True):
        at = f"{op}: {name}[{index}]"
        require_tensor(at, tensor)
        if tensor.layout != torch.strided:
            raise OpInputError(f"{at} is {tensor.layout}, expected a dense tensor")
        if tensor.dtype not in _DTYPES:
            known = ", ".join(map(str, _DTYPES))
            raise OpInputError(f"{at} is {tensor.dtype}, expected one of {known}")
        if tensor.device != first.device:
            raise OpInputError(
                f"{at} is on {tensor.device}, but its gradient is on {first.device}"
            )
        if tensor.numel() != first.numel():
            raise OpInputError(
                f"{at} has {tensor.numel()} elements, but its gradient has {first.numel()}; "
                "expected the same number"
            )
        if tensor is not first:
            require_writable(at, tensor)
    if all(tensor.shape == first.shape for tensor in tensors):
        return list(tensors)
    # Compiled kernels pair tensors by their elements alone: a state may be flat where the parameter is not.
    for name, tensor in zip(names, tensors, strict=True):
        if not tensor.is_contiguous():
            raise OpInputError(
                f"{op}: {name}[{index}] is not contiguous, and its shape {tuple(tensor.shape)} is not its "
                f"gradient's {tuple(first.shape)}; expected one shape, or contiguous tensors"
            )
    return [tensor.view(-1) for tensor in tensors]


def corrections(
    op: str, beta1: float, beta2: float, step: int, bias_correction: bool
) -> tuple[float, float]:
    """Return `1 - beta**step` for both rates, or 1 without bias correction.

    Raises `OpInputError` for a rate that is not in [0, 1), and for a step that is not a whole number of 1 or
    more.
    """
    check_rates(op, beta1, beta2)
    step = whole(op, "step", step, 1, 64)
    return (1 - beta1**step, 1 - beta2**step) if bias_correction else (1.0, 1.0)
