"""What the portable operators share: tensors are checked, grouped and brought to one precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from accel_core.errors import OpInputError

__all__ = ["betas", "corrections", "update_in_groups"]

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def update_in_groups(op: str, lists: Mapping[str, Sequence[Tensor]], update: Callable[..., None]) -> None:
    """Call `update(gradients, parameters, *states)` with lists of tensors that `torch._foreach_*` takes.

    `lists` has the gradients first, which are only read; the others are updated in place. Tensors at one
    index belong together: one device, and as many elements in each. Computing is in float32, or in
    float64 for float64 parameters. Tensors of that precision are handed on as they are, grouped by device;
    with others in between, one parameter at a time is widened, so that the copies stay small. Empty tensors
    are left out.

    Raises `OpInputError` for lists that do not match, and for tensors that are sparse or not floating point.
    """
    gradients, *updated = lists.values()
    for name, values in lists.items():
        if len(values) != len(gradients):
            raise OpInputError(
                f"{op}: {len(values)} {name}, but {len(gradients)} gradients; expected as many in each list"
            )
    groups: dict[Any, list[list[Tensor]]] = {}
    with torch.no_grad():
        for index, tensors in enumerate(zip(gradients, *updated, strict=True)):
            row = _checked(op, index, lists, tensors)
            if row[0].numel() == 0:
                continue
            wide = torch.float64 if row[1].dtype == torch.float64 else torch.float32
            if all(tensor.dtype == wide for tensor in row):
                groups.setdefault((row[0].device, wide), []).append(row)
            else:
                _update_widened(row, wide, update)
        for rows in groups.values():
            update(*map(list, zip(*rows, strict=True)))


def _update_widened(row: list[Tensor], wide: torch.dtype, update: Callable[..., None]) -> None:
    copies = [tensor.to(wide) for tensor in row]
    update(*([copy] for copy in copies))
    for tensor, copy in zip(row[1:], copies[1:], strict=True):
        if copy is not tensor:
            tensor.copy_(copy)


def _checked(op: str, index: int, names: Mapping[str, Any], tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors of one parameter, in one shape."""
    first = tensors[0]
    for name, tensor in zip(names, tensors, strict=True):
        at = f"{op}: {name}[{index}]"
        if tensor.layout != torch.strided:
            raise OpInputError(f"{at} is {tensor.layout}, expected a dense tensor")
        if tensor.dtype not in _DTYPES:
            known = ", ".join(map(str, _DTYPES))
            raise OpInputError(f"{at} is {tensor.dtype}, expected one of {known}")
        if tensor.device != first.device:
            raise OpInputError(f"{at} is on {tensor.device}, and its gradient on {first.device}")
        if tensor.numel() != first.numel():
            raise OpInputError(
                f"{at} has {tensor.numel()} elements, its gradient {first.numel()}; expected as many"
            )
    if all(tensor.shape == first.shape for tensor in tensors):
        return list(tensors)
    # DeepSpeed pairs tensors by their elements alone: a state may be flat where the parameter is not.
    for name, tensor in zip(names, tensors, strict=True):
        if not tensor.is_contiguous():
            raise OpInputError(
                f"{op}: {name}[{index}] is not contiguous, and its shape {tuple(tensor.shape)} is not its "
                f"gradient's {tuple(first.shape)}; expected one shape, or contiguous tensors"
            )
    return [tensor.view(-1) for tensor in tensors]


def betas(op: str, beta1: float, beta2: float) -> None:
    """Raise `OpInputError` where a decay rate is not in [0, 1)."""
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= value < 1:
            raise OpInputError(f"{op}: {name} is {value}, expected 0 <= {name} < 1")


def corrections(op: str, beta1: float, beta2: float, step: int, bias_correction: bool) -> tuple[float, float]:
    """`1 - beta**step` for both rates, or 1 without bias correction; raises `OpInputError` for step < 1."""
    betas(op, beta1, beta2)
    if step < 1:
        raise OpInputError(f"{op}: step is {step}, expected 1 or more: the first update is step 1")
    return (1 - beta1**step, 1 - beta2**step) if bias_correction else (1.0, 1.0)
