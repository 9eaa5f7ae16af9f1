"""Check the tensors of the portable operators, group them, and convert them to a common data type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import OpInputError
from accel_train.ops.arguments import (
    check_rates,
    require_tensor,
    require_whole_number,
    require_writable,
)

__all__ = ["bias_corrections", "update_in_groups"]

#: The number of elements that an update processes at a time on the CPU. In float32, these elements and the
#: intermediate results take 7 MiB, which fits in the CPU's caches. In one pass over a large tensor, each
#: operation would read all elements from memory. Adam with `foreach` on 10 million elements takes 10 ms in
#: pieces of this size, and 26 ms in one pass (two cores of an EPYC of family 26; sizes from 2^17 to 2^20
#: hardly differ). Results do not depend on the size.
_PIECE_ELEMENTS = 2**18
_SUPPORTED_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def update_in_groups(
    op: str,
    lists: Mapping[str, Sequence[Tensor]],
    update: Callable[..., None],
    *,
    elementwise: bool = True,
    fused_update: Callable[..., None] | None = None,
) -> None:
    """Call `update(gradients, parameters, *states)` with lists of tensors that `torch._foreach_*` accepts.

    The first of `lists` contains the gradients, which are only read. The parameters and states are updated in
    place. The tensors at the same index of all lists belong to one parameter. They are on the same device and
    have the same number of elements. `update` gets float64 tensors for float64 parameters, and float32
    tensors otherwise. Tensors that already have these data types are passed unchanged, grouped by device.
    Other tensors are converted for one parameter at a time, so that the copies stay small. Empty tensors are
    skipped.

    With `elementwise`, `update` gets CPU tensors in pieces. For each parameter that torch's fused kernels
    support, `fused_update` is called instead of `update`. All tensors of such a parameter are on the CPU and
    have the same data type.

    Raises `OpInputError`, before any tensor is changed, if tensors do not match, if a value is not a tensor,
    if a tensor is sparse or not floating point, or if elements of a tensor to update share memory.
    """
    # One row for each parameter, with its gradient and its states.
    tensors_by_parameter = zip(*lists.values(), strict=True)
    rows = []
    for index, tensors in enumerate(tensors_by_parameter):
        row = _validate_row(op, index, lists, tensors)
        gradient = row[0]
        if gradient.numel() > 0:
            rows.append(row)
    with torch.no_grad():
        if fused_update is not None:
            fusable_rows = [row for row in rows if _is_fusable(row)]
            rows = [row for row in rows if not _is_fusable(row)]
            if fusable_rows:
                _call_fused_update(fusable_rows, fused_update)
        _update_rows(rows, update, elementwise=elementwise)


def _is_fusable(row: list[Tensor]) -> bool:
    """Return whether torch's fused CPU kernels accept the tensors: on the CPU, with the same data type."""
    gradient = row[0]
    is_on_cpu = gradient.device.type == "cpu"
    dtypes = {tensor.dtype for tensor in row}
    return is_on_cpu and len(dtypes) == 1


def _call_fused_update(
    rows: list[list[Tensor]], fused_update: Callable[..., None]
) -> None:
    """Call `fused_update` on contiguous tensors, which torch's kernels require, and copy the results back."""
    contiguous_rows = []
    for row in rows:
        # A tensor that is contiguous already is not copied.
        contiguous_rows.append([tensor.contiguous() for tensor in row])
    fused_update(*_columns(contiguous_rows))
    for row, contiguous_row in zip(rows, contiguous_rows, strict=True):
        _gradient, *changed_tensors = row
        _gradient, *contiguous_tensors = contiguous_row
        for tensor, updated in zip(changed_tensors, contiguous_tensors, strict=True):
            if updated is not tensor:
                tensor.copy_(updated)
            elif not tensor.is_inference():
                # The kernels of torch 2.13 do not notify autograd that they change a tensor.
                torch.autograd.graph.increment_version(tensor)


def _columns(rows: Iterable[list[Tensor]]) -> list[list[Tensor]]:
    """Return the columns of `rows`: a list of gradients, a list of parameters, and a list for each state."""
    return [list(column) for column in zip(*rows, strict=True)]


def _update_rows(
    rows: Iterable[list[Tensor]], update: Callable[..., None], *, elementwise: bool
) -> None:
    """Call `update` on all rows, in float64 for float64 parameters, and otherwise in float32.

    Rows with this data type are passed in one group for each device. Other rows are passed one by one, as
    converted copies.
    """
    rows_of_device_and_dtype: dict[Any, list[list[Tensor]]] = {}
    for row in rows:
        gradient = row[0]
        device = gradient.device
        compute_dtype = _compute_dtype(row)
        if all(tensor.dtype == compute_dtype for tensor in row):
            key = (device, compute_dtype)
            rows_of_device_and_dtype.setdefault(key, []).append(row)
            continue
        pieces: Iterable[list[Tensor]] = [row]
        if elementwise and device.type == "cpu":
            pieces = _split_into_pieces(row)
        for piece in pieces:
            _update_converted_copies(piece, compute_dtype, update)
    for (device, _dtype), group in rows_of_device_and_dtype.items():
        if elementwise and device.type == "cpu":
            _update_in_batches(group, update)
        else:
            update(*_columns(group))


def _update_in_batches(rows: list[list[Tensor]], update: Callable[..., None]) -> None:
    """Call `update` on batches of pieces of rows. Each batch fits in the CPU's caches."""
    for batch in _split_into_batches(rows):
        update(*_columns(batch))


def _compute_dtype(row: list[Tensor]) -> torch.dtype:
    """Return the data type for computations: float64 for a float64 parameter, else float32."""
    _gradient, parameter, *_states = row
    if parameter.dtype == torch.float64:
        return torch.float64
    return torch.float32


def _split_into_pieces(row: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield views of a row's tensors with at most `_PIECE_ELEMENTS` elements, as shorter rows.

    A row with tensors that are small or not contiguous is yielded unchanged.
    """
    are_contiguous = all(tensor.is_contiguous() for tensor in row)
    gradient = row[0]
    is_small = gradient.numel() <= _PIECE_ELEMENTS
    if is_small or not are_contiguous:
        yield row
        return
    pieces_of_tensors = [
        torch.split(tensor.view(-1), _PIECE_ELEMENTS) for tensor in row
    ]
    # The n-th pieces of all tensors belong to the same elements.
    for piece in zip(*pieces_of_tensors, strict=True):
        yield list(piece)


def _split_into_batches(rows: Iterable[list[Tensor]]) -> Iterator[list[list[Tensor]]]:
    """Yield lists of rows, or of pieces of rows, with at least `_PIECE_ELEMENTS` elements in total.

    The last list may have fewer elements.
    """
    batch: list[list[Tensor]] = []
    elements = 0
    for row in rows:
        for piece in _split_into_pieces(row):
            batch.append(piece)
            gradient = piece[0]
            elements += gradient.numel()
            if elements >= _PIECE_ELEMENTS:
                yield batch
                batch, elements = [], 0
    if batch:
        yield batch


def _update_converted_copies(
    row: list[Tensor], compute_dtype: torch.dtype, update: Callable[..., None]
) -> None:
    """Call `update` on copies of the row's tensors in `compute_dtype`, and copy the results back."""
    # `to` returns the tensor itself if it has the type already.
    copies = [tensor.to(compute_dtype) for tensor in row]
    update(*_columns([copies]))
    _gradient, *changed_tensors = row
    _gradient, *changed_copies = copies
    for tensor, copy in zip(changed_tensors, changed_copies, strict=True):
        if copy is not tensor:
            tensor.copy_(copy)


def _validate_row(
    op: str, index: int, names: Mapping[str, Any], tensors: Sequence[Tensor]
) -> list[Tensor]:
    """Return the tensors of one parameter in a common shape. If the shapes differ, flat views are returned.

    `index` is the parameter's position in the lists named `names`, for messages. Raises `OpInputError` if the
    tensors cannot be updated together.
    """
    gradient = tensors[0]
    for name, tensor in zip(names, tensors, strict=True):
        _check_tensor(f"{op}: {name}[{index}]", tensor, gradient)
    if all(tensor.shape == gradient.shape for tensor in tensors):
        return list(tensors)
    # Compiled kernels ignore shapes, so a state may be flat although its parameter is not.
    for name, tensor in zip(names, tensors, strict=True):
        if not tensor.is_contiguous():
            raise OpInputError(
                f"{op}: {name}[{index}] is not contiguous, and its shape {tuple(tensor.shape)} differs from "
                f"its gradient's, {tuple(gradient.shape)}; expected the same shape, or contiguous tensors"
            )
    return [tensor.view(-1) for tensor in tensors]


def _check_tensor(argument_name: str, tensor: Tensor, gradient: Tensor) -> None:
    """Raise `OpInputError` unless an operator can use `tensor` together with `gradient`."""
    require_tensor(argument_name, tensor)
    if tensor.layout != torch.strided:
        raise OpInputError(
            f"{argument_name} is {tensor.layout}, expected a dense tensor"
        )
    if tensor.dtype not in _SUPPORTED_DTYPES:
        supported = ", ".join(str(dtype) for dtype in _SUPPORTED_DTYPES)
        raise OpInputError(
            f"{argument_name} is {tensor.dtype}, expected one of {supported}"
        )
    if tensor.device != gradient.device:
        raise OpInputError(
            f"{argument_name} is on {tensor.device}, but its gradient is on {gradient.device}; expected the "
            "same device"
        )
    if tensor.numel() != gradient.numel():
        raise OpInputError(
            f"{argument_name} has {tensor.numel()} elements, but its gradient has {gradient.numel()}; "
            "expected the same number of elements"
        )
    if tensor is not gradient:
        require_writable(argument_name, tensor)


def bias_corrections(
    op: str, beta1: float, beta2: float, step: int, bias_correction: bool
) -> tuple[float, float]:
    """Return Adam's two bias corrections: `1 - beta**step` for each beta, or 1 without `bias_correction`.

    Raises `OpInputError` if a decay rate is not in [0, 1), or if the step is not a whole number of at least
    1.
    """
    check_rates(op, beta1, beta2)
    step = require_whole_number(op, "step", step, 1, 64)
    if not bias_correction:
        return 1.0, 1.0
    return 1 - beta1**step, 1 - beta2**step
