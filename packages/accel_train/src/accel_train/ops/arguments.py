"""Check the arguments of optimizers' operators, before anything is changed and before foreign code runs.

DeepSpeed's C++ takes addresses: a wrong argument crashes Python, or writes to memory of another tensor.
All operators reject the values on which they would differ (a rate of 1, a negative weight decay), with the
same message.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from accel_core.errors import OpInputError
from accel_core.torch_import import import_torch

__all__ = [
    "check_decay",
    "check_mode",
    "check_rates",
    "check_undoable",
    "named_lists",
    "require_tensor",
    "require_writable",
    "update_on_host",
    "whole",
    "zenflow_is_missing",
]

#: From here on a float32 is 1: code that computes in float32 would divide by `1 - rate`, which is 0.
_ONE_IN_FLOAT32 = 1 - 2**-25


@functools.cache  # it is asked for every tensor of a step
def _torch() -> Any:
    return import_torch()


def whole(op: str, name: str, value: Any, least: int, bits: int) -> int:
    """Return `value` as an int; it may be a float or a tensor that holds a whole number.

    Raises `OpInputError` if it is not a whole number, is below `least`, or does not fit in a signed integer
    of `bits` bits.
    """
    number = 0
    try:
        number = int(value)
        fits = number == value and least <= number < 2 ** (bits - 1)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        at_least = f"{least} or more" if least >= 0 else "a whole number"
        raise OpInputError(
            f"{op}: {name} is {value!r}, expected {at_least}, in {bits} bits"
        )
    return number


def check_rates(op: str, beta1: float, beta2: float, *, float32: bool = False) -> None:
    """Raise `OpInputError` if a decay rate is not in [0, 1); with `float32`, also if it rounds to 1 there."""
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        if not _is_within(value, _ONE_IN_FLOAT32 if float32 else 1.0):
            rounded = ", also in float32" if float32 else ""
            raise OpInputError(
                f"{op}: {name} is {value!r}, expected 0 <= {name} < 1{rounded}"
            )


def check_decay(op: str, weight_decay: float) -> None:
    """Raise `OpInputError` for a weight decay below 0: torch rejects it too, compiled kernels ignore it."""
    if not _is_within(weight_decay, math.inf):
        raise OpInputError(
            f"{op}: weight_decay is {weight_decay!r}, expected 0 or more"
        )


def check_undoable(
    op: str, beta1: float, beta2: float, decoupled_decay: float = 0.0, lr: float = 0.0
) -> None:
    """Raise `OpInputError` if the step cannot be undone: `beta1`, `beta2` or the remaining weight is 0."""
    if 0 in (beta1, beta2, 1 - lr * decoupled_decay):
        raise OpInputError(
            f"{op}: a step with beta1={beta1}, beta2={beta2}, lr * weight_decay={lr * decoupled_decay} "
            "cannot be undone"
        )


def _is_within(value: Any, limit: float) -> bool:
    try:
        return 0 <= float(value) < limit
    except (TypeError, ValueError):
        return False


def _require_list(op: str, name: str, values: Any) -> None:
    """Raise `OpInputError` where `values` is no list or tuple; a tensor is none, though it has a length."""
    if not isinstance(values, (list, tuple)):
        raise OpInputError(
            f"{op}: {name} is of type {type(values).__name__}, expected a list of tensors"
        )


def named_lists(op: str, names: Sequence[str], lists: Any) -> dict[str, Sequence[Any]]:
    """Return the lists of a multi-tensor operator by name; the first holds the gradients.

    Raises `OpInputError` unless there is one list for each of `names`, all of the same length.
    """
    _require_list(op, "tensor_lists", lists)
    if len(lists) != len(names):
        raise OpInputError(
            f"{op}: {len(lists)} lists of tensors, expected {len(names)}: {', '.join(names)}"
        )
    for name, values in zip(names, lists, strict=True):
        _require_list(op, name, values)
        if len(values) != len(lists[0]):
            raise OpInputError(
                f"{op}: {len(values)} {name}, but {len(lists[0])} {names[0]}; expected lists of one length"
            )
    return dict(zip(names, lists, strict=True))


def zenflow_is_missing(op: str, name: str) -> AttributeError:
    """Return the error for a function that our operator lacks; a framework's own has more, for ZenFlow."""
    if not name.startswith("zenflow_"):
        return AttributeError(f"{op} has no {name!r}")
    return AttributeError(
        f"{op} has no {name!r}: ZenFlow's overlapped step needs DeepSpeed's own, which is used where it "
        "compiles; `accel ops CPUAdam` names what is missing"
    )


def check_mode(op: str, mode: Any) -> None:
    """Raise `OpInputError` unless `mode` is 0 or 1."""
    if mode not in (0, 1):
        raise OpInputError(f"{op}: mode is {mode}, expected 0 (Adam) or 1 (AdamW)")


def require_tensor(at: str, value: Any) -> None:
    """Raise `OpInputError` unless `value` is a tensor; `at` names the operator and the argument."""
    if not isinstance(value, _torch().Tensor):
        raise OpInputError(
            f"{at} is {value!r} ({type(value).__name__}), expected a tensor"
        )


def require_writable(at: str, tensor: Any) -> None:
    """Raise `OpInputError` if elements of a dense tensor share memory, as after `expand()`."""
    if tensor.is_contiguous():
        return
    if any(
        not stride and size > 1
        for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        raise OpInputError(
            f"{at} repeats its elements (expand()); expected memory for each: clone() it"
        )


def update_on_host(
    op: str,
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    work: Callable[[list[list[Any]]], Any],
) -> Any:
    """Call `work` on contiguous CPU tensors that compiled code can use by address; return what it returns.

    Each of `rows` is `(gradient, parameter, *states)`, in the order of `names`; `work` gets all rows at once.
    A tensor that is not contiguous is passed as a copy, and the copy is written back afterwards. Gradients
    are only read. Autograd is notified of the changes.

    Raises `OpInputError` before anything is changed. Every tensor must be dense, on the CPU, and have memory
    of its own. The tensors of one row must have the same number of elements. Parameters and gradients must
    have the same type, float32, bfloat16 or float16. The states must all be float32, or all of their
    parameter's type.
    """
    torch = _torch()
    for index, row in enumerate(rows):
        _check_row(
            op, [f"{name}[{index}]" if len(rows) > 1 else name for name in names], row
        )
    dense = [[tensor.detach().contiguous() for tensor in row] for row in rows]
    returned = work(dense)
    for row, copies in zip(rows, dense, strict=True):
        for tensor, copy in zip(row[1:], copies[1:], strict=True):
            if tensor.is_contiguous():
                if not tensor.is_inference():
                    torch.autograd.graph.increment_version(tensor)
            else:
                tensor.detach().copy_(copy)  # which autograd sees by itself
    return returned


def _check_row(op: str, names: Sequence[str], row: Sequence[Any]) -> None:
    torch = _torch()
    known = (torch.float32, torch.bfloat16, torch.float16)
    gradient, parameter, *states = row
    for name, tensor in zip(names, row, strict=True):
        at = f"{op}: {name}"
        require_tensor(at, tensor)
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            raise OpInputError(
                f"{at} is a {tensor.layout} tensor on {tensor.device}; expected a dense one on cpu"
            )
        if tensor.dtype not in known:
            raise OpInputError(
                f"{at} is {tensor.dtype}; expected one of {', '.join(map(str, known))}"
            )
        if type(
            tensor
        ).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or not _has_memory(
            tensor
        ):
            raise OpInputError(
                f"{at} ({type(tensor).__name__}) has no memory for its {tensor.numel()} elements: it was "
                "freed, is fake or stands for other tensors; expected a plain one"
            )
    for name, tensor in zip(names, row, strict=True):
        if tensor.numel() != parameter.numel():
            raise OpInputError(
                f"{op}: {name} has {tensor.numel()} elements, but {names[1]} has {parameter.numel()}; "
                "expected the same number"
            )
        if tensor is not gradient:
            require_writable(f"{op}: {name}", tensor)
    if gradient.dtype != parameter.dtype:
        raise OpInputError(
            f"{op}: {names[0]} are {gradient.dtype}, {names[1]} {parameter.dtype}; expected one type"
        )
    kinds = {state.dtype for state in states}
    if len(kinds) > 1 or not kinds <= {parameter.dtype, torch.float32}:
        found = ", ".join(
            f"{name} {state.dtype}"
            for name, state in zip(names[2:], states, strict=True)
        )
        raise OpInputError(
            f"{op}: {found.replace(' ', ' is ', 1)}; expected both float32 or both {parameter.dtype}"
        )


def _has_memory(tensor: Any) -> bool:
    """Whether its storage holds its elements; not after `storage.resize_(0)`, with which FSDP frees it."""
    count = tensor.numel()
    if count and not tensor.is_contiguous():
        steps = zip(tensor.stride(), tensor.shape, strict=True)
        count = 1 + sum(stride * (size - 1) for stride, size in steps)
    needed = (tensor.storage_offset() + count) * tensor.element_size()
    return not count or bool(tensor.untyped_storage().nbytes() >= needed)
