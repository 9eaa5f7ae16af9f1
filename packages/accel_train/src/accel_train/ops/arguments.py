"""Check the arguments of optimizer operators, before any tensor is changed and before compiled code runs.

DeepSpeed's C++ uses memory addresses, so a wrong argument crashes Python, or overwrites the memory of a
different tensor. For some values (a decay rate of 1, a negative weight decay), operators compute different
results, so all operators reject these values with the same message. The argument `op` is the operator's name
for messages.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from accel_core.errors import OpInputError
from accel_core.torch_import import import_torch

__all__ = [
    "check_decay",
    "check_mode",
    "check_rates",
    "check_undoable",
    "missing_function_error",
    "named_lists",
    "require_tensor",
    "require_whole_number",
    "require_writable",
    "update_on_host",
]

#: The smallest number that float32 rounds to 1. For such a rate, `1 - rate` would be 0, and it is a divisor.
_ONE_IN_FLOAT32 = 1 - 2**-25


# Cached, because every tensor of a step needs it.
@functools.cache
def _torch() -> Any:
    return import_torch()


def require_whole_number(
    op: str, name: str, value: Any, minimum: int, bits: int
) -> int:
    """Return `value` as an int. It may also be a float or a tensor, if it contains a whole number.

    `name` is the argument's name for error messages. Raises `OpInputError` if `value` is not a whole number,
    is below `minimum`, or does not fit in a signed integer of `bits` bits.
    """
    number = 0
    is_valid = False
    with suppress(TypeError, ValueError, OverflowError):
        number = int(value)
        is_whole = number == value
        is_valid = is_whole and minimum <= number < 2 ** (bits - 1)
    if not is_valid:
        expected = "a whole number"
        if minimum >= 0:
            expected = f"a whole number of {minimum} or more"
        raise OpInputError(
            f"{op}: {name} is {value!r}, expected {expected} that fits in {bits} bits"
        )
    return number


def check_rates(op: str, beta1: float, beta2: float, *, float32: bool = False) -> None:
    """Raise `OpInputError` if a decay rate is not in [0, 1).

    With `float32`, the error is also raised if a decay rate rounds to 1 in float32.
    """
    limit, suffix = 1.0, ""
    if float32:
        limit, suffix = _ONE_IN_FLOAT32, " after rounding to float32"
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        if not _is_from_0_to_below(value, limit):
            raise OpInputError(
                f"{op}: {name} is {value!r}, expected 0 <= {name} < 1{suffix}"
            )


def check_decay(op: str, weight_decay: float) -> None:
    """Raise `OpInputError` if the weight decay is negative.

    torch rejects a negative weight decay, but compiled kernels ignore it.
    """
    if not _is_from_0_to_below(weight_decay, math.inf):
        raise OpInputError(
            f"{op}: weight_decay is {weight_decay!r}, expected 0 or more"
        )


def check_undoable(
    op: str, beta1: float, beta2: float, decoupled_decay: float = 0.0, lr: float = 0.0
) -> None:
    """Raise `OpInputError` if a step of Adam cannot be undone, because it multiplied a tensor by 0.

    The step's factors are `beta1`, `beta2` and, with decoupled weight decay, `1 - lr * decoupled_decay`.
    """
    # A step multiplied the averages by the rates, and the parameter by the last factor.
    factors = (beta1, beta2, 1 - lr * decoupled_decay)
    if 0 in factors:
        raise OpInputError(
            f"{op}: a step with beta1={beta1}, beta2={beta2}, lr * weight_decay={lr * decoupled_decay} "
            "cannot be undone, because it multiplied a tensor by 0"
        )


def _is_from_0_to_below(value: Any, limit: float) -> bool:
    """Return whether `0 <= value < limit`; False for a value that is not a number."""
    try:
        return 0 <= float(value) < limit
    except (TypeError, ValueError):
        return False


def _require_list(op: str, name: str, values: Any) -> None:
    """Raise `OpInputError` unless `values` is a list or a tuple."""
    if not isinstance(values, (list, tuple)):
        raise OpInputError(
            f"{op}: {name} is of type {type(values).__name__}, expected a list of tensors"
        )


def named_lists(op: str, names: Sequence[str], lists: Any) -> dict[str, Sequence[Any]]:
    """Return the tensor lists of a multi-tensor operator by name. The first list contains the gradients.

    Raises `OpInputError` unless there is one list for each of `names`, and all lists have the same length.
    """
    _require_list(op, "tensor_lists", lists)
    if len(lists) != len(names):
        raise OpInputError(
            f"{op}: tensor_lists has {len(lists)} lists, expected {len(names)}: {', '.join(names)}"
        )
    gradients_name, *_other_names = names
    gradients, *_other_lists = lists
    for name, values in zip(names, lists, strict=True):
        _require_list(op, name, values)
        if len(values) != len(gradients):
            raise OpInputError(
                f"{op}: the list {name} has {len(values)} tensors, but {gradients_name} has "
                f"{len(gradients)}; expected lists of the same length"
            )
    return dict(zip(names, lists, strict=True))


def missing_function_error(op: str, name: str) -> AttributeError:
    """Return the error to raise if the portable operator `op` does not have the function `name`.

    Only DeepSpeed's compiled operator has the functions for ZenFlow. If `name` is one of them, the message
    says how to find out why the compiled operator is not used.
    """
    if not name.startswith("zenflow_"):
        return AttributeError(f"{op} has no {name!r}")
    return AttributeError(
        f"{op} has no {name!r}: ZenFlow's overlapped step needs DeepSpeed's compiled operator. "
        "`accel ops CPUAdam` shows why the compiled operator is not used."
    )


def check_mode(op: str, mode: Any) -> None:
    """Raise `OpInputError` unless the optimizer's `mode` is 0 or 1."""
    if mode not in (0, 1):
        raise OpInputError(f"{op}: mode is {mode}, expected 0 (Adam) or 1 (AdamW)")


def require_tensor(argument_name: str, value: Any) -> None:
    """Raise `OpInputError` unless `value` is a tensor.

    The error message names the argument `argument_name`.
    """
    if not isinstance(value, _torch().Tensor):
        raise OpInputError(
            f"{argument_name} is {value!r} ({type(value).__name__}), expected a tensor"
        )


def require_writable(argument_name: str, tensor: Any) -> None:
    """Raise `OpInputError` if elements of a dense `tensor` share memory, for example after `expand()`."""
    if tensor.is_contiguous():
        return
    for stride, size in zip(tensor.stride(), tensor.shape, strict=True):
        are_elements_shared = stride == 0 and size > 1
        if are_elements_shared:
            raise OpInputError(
                f"{argument_name} has elements that share memory, for example after expand(); expected "
                "separate memory for each element. Call clone() on the tensor."
            )


def update_on_host(
    op: str,
    names: Sequence[str],
    rows: Sequence[Sequence[Any]],
    update: Callable[[list[list[Any]]], Any],
) -> Any:
    """Call `update` on contiguous CPU tensors whose memory compiled code can access, and return its result.

    Each of `rows` is a tuple `(gradient, parameter, *states)`, in the order of `names`. `update` is called
    once, with all rows. For a tensor that is not contiguous, `update` gets a contiguous copy. The copy is
    then copied back, unless the tensor is a gradient, which `update` only reads. Autograd is notified of the
    changes.

    Raises `OpInputError`, before any tensor is changed, unless the following conditions hold. Every tensor is
    dense, is on the CPU, and has memory. The tensors of a row have the same number of elements. Parameters
    and gradients have the same data type: float32, bfloat16 or float16. The states of a row are all float32,
    or all have the parameter's data type.
    """
    for index, row in enumerate(rows):
        row_names = list(names)
        if len(rows) > 1:
            row_names = [f"{name}[{index}]" for name in names]
        for name, tensor in zip(row_names, row, strict=True):
            _check_host_tensor(f"{op}: {name}", tensor)
        _check_row(op, row_names, row)
    contiguous_rows = []
    for row in rows:
        contiguous_rows.append([tensor.detach().contiguous() for tensor in row])
    result = update(contiguous_rows)
    for row, contiguous_row in zip(rows, contiguous_rows, strict=True):
        _gradient, *changed_tensors = row
        _gradient, *contiguous_tensors = contiguous_row
        for tensor, updated in zip(changed_tensors, contiguous_tensors, strict=True):
            _copy_back_and_notify_autograd(tensor, updated)
    return result


def _copy_back_and_notify_autograd(tensor: Any, contiguous_tensor: Any) -> None:
    """Copy `contiguous_tensor` back to `tensor`, from which it was made, and notify autograd of the change.

    If `tensor` is contiguous, both have the same memory, and nothing is copied.
    """
    if not tensor.is_contiguous():
        tensor.detach().copy_(contiguous_tensor)  # This call notifies autograd.
    elif not tensor.is_inference():
        _torch().autograd.graph.increment_version(tensor)


def _check_host_tensor(argument_name: str, tensor: Any) -> None:
    """Raise `OpInputError` unless `tensor` is dense, on the CPU, of a supported type, and has memory."""
    torch = _torch()
    supported = (torch.float32, torch.bfloat16, torch.float16)
    require_tensor(argument_name, tensor)
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise OpInputError(
            f"{argument_name} is a {tensor.layout} tensor on {tensor.device}; expected a dense tensor on cpu"
        )
    if tensor.dtype not in supported:
        expected = ", ".join(str(dtype) for dtype in supported)
        raise OpInputError(
            f"{argument_name} is {tensor.dtype}; expected one of {expected}"
        )
    # A subclass that dispatches operators itself (a fake tensor, a wrapper) has no memory with its elements.
    is_ordinary = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    if not is_ordinary or not _has_enough_storage(tensor):
        raise OpInputError(
            f"{argument_name} ({type(tensor).__name__}) has no memory for its {tensor.numel()} elements: "
            "the memory was freed, or the tensor is fake or wraps other tensors; expected an ordinary tensor"
        )


def _check_row(op: str, names: Sequence[str], row: Sequence[Any]) -> None:
    """Raise `OpInputError` unless the gradient, parameter and states match in size and data type."""
    torch = _torch()
    gradient, parameter, *states = row
    gradient_name, parameter_name, *state_names = names
    for name, tensor in zip(names, row, strict=True):
        if tensor.numel() != parameter.numel():
            raise OpInputError(
                f"{op}: {name} has {tensor.numel()} elements, but {parameter_name} has {parameter.numel()}; "
                "expected the same number of elements"
            )
        if tensor is not gradient:
            require_writable(f"{op}: {name}", tensor)
    if gradient.dtype != parameter.dtype:
        raise OpInputError(
            f"{op}: {gradient_name} has the type {gradient.dtype}, but {parameter_name} has "
            f"{parameter.dtype}; expected the same data type"
        )
    allowed_dtypes = {parameter.dtype, torch.float32}
    state_dtypes = {state.dtype for state in states}
    if len(state_dtypes) > 1 or not state_dtypes <= allowed_dtypes:
        dtypes = []
        for name, state in zip(state_names, states, strict=True):
            dtypes.append(f"{name} is {state.dtype}")
        expected = "all states in torch.float32"
        if parameter.dtype != torch.float32:
            expected += f", or all in {parameter.dtype}"
        raise OpInputError(f"{op}: {', '.join(dtypes)}; expected {expected}")


def _has_enough_storage(tensor: Any) -> bool:
    """Return whether the tensor's storage is large enough for the tensor's elements.

    The storage is too small after `storage.resize_(0)`, with which FSDP frees a tensor's memory.
    """
    if not tensor.numel():
        return True
    elements = tensor.numel()
    if not tensor.is_contiguous():
        # The number of elements from the first to the last element, including gaps.
        elements = 1
        for stride, size in zip(tensor.stride(), tensor.shape, strict=True):
            elements += stride * (size - 1)
    needed_bytes = (tensor.storage_offset() + elements) * tensor.element_size()
    return bool(tensor.untyped_storage().nbytes() >= needed_bytes)
