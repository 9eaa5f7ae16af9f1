"""torch's own database of operators, and the samples with which its own tests call each of them.

`torch.testing._internal.common_methods_invocations` (torch 2.6 to 2.15) has some 700 operators. torch's
`test_ops.py` compares the results of another device with the processor's in `test_compare_cpu`, and says of
which operators it does not: of those that draw, or that may give one of several right results.
"""

from __future__ import annotations

import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.utils import _pytree as pytree

from accel_core import Accelerator
from accel_testing.conformance.claims import not_claimed, require
from accel_testing.conformance.compute.compared import blamed, differs
from accel_testing.conformance.compute.transferred import Transfer, leaves

__all__ = [
    "Turn",
    "arguments",
    "forward",
    "gradients",
    "gradients_in_place",
    "hold_samples",
    "made_on",
    "operators",
    "several",
    "weights",
    "written",
    "written_into",
]

#: Calls an operator with a sample on a device, and gives what is compared.
Turn = Callable[[Any, Any, torch.device], Any]

_HOST = torch.device("cpu")
#: As `test_compare_cpu` of torch's own `test_ops.py` has it, of the largest number.
_BOUND = 1e-3
_TOLD = 4
#: Their values are what was in memory.
_UNWRITTEN = ("empty", "new_empty", "resize_")
#: Takes a tensor that torch wants on the host, whatever the device.
_ON_THE_HOST = ("tensor_split",)


def operators(*, foreach: bool = False) -> list[Any]:
    """Return the `OpInfo`s whose results can be compared with the processor's.

    Skips the check where torch's own tests cannot be imported: some builds are without them.
    """
    try:
        # That import would forbid the process to change the flags of torch.backends.
        with _quiet(), mock.patch.object(torch.backends, "disable_global_flags"):
            from torch.testing._internal import common_methods_invocations as database
    except Exception as error:
        not_claimed(
            f"torch's database of operators cannot be imported: {type(error).__name__}: {error}"
        )
    if foreach:
        names = [
            name
            for name in dir(database)
            if name.startswith("foreach_") and name.endswith("_op_db")
        ]
        return [each for name in names for each in getattr(database, name)]
    return [
        each
        for each in database.op_db
        if not each.name.startswith(_UNWRITTEN)
        and not any(
            getattr(why, "test_name", None) == "test_compare_cpu"
            for why in each.decorators
        )
    ]


def hold_samples(
    accelerator: Accelerator,
    turn: Turn,
    *dtypes: torch.dtype,
    most: int,
    foreach: bool = False,
    strided: bool = False,
    backward: bool = False,
    without: Sequence[str] = (),
) -> None:
    """Raise `BrokenPromise` unless `turn` gives of each operator's samples what it gives on the processor.

    Of each operator and type `most` samples are taken, spread over those that there are; operators `without`
    are left out. With `strided` there are other numbers between those of each tensor, and dimensions are
    counted from the end. What the device refuses is left out too: it does not have the operator, or not of
    these numbers.
    """
    device = accelerator.device(0)
    if device.type == "cpu":
        not_claimed("the samples are compared with the processor itself")
    faults: list[str] = []
    compared = 0
    with _seeds_of_the_host(0):
        for op in operators(foreach=foreach):
            for dtype in dtypes if op.name not in without else ():
                found = ""
                for sample in _samples(
                    op, dtype, most, strided=strided, backward=backward
                ):
                    said = _compared(turn, op, sample, device)
                    compared += said is not None
                    if said:
                        what = _SAID.get(turn, "") + _words(op, sample)
                        found = f"{what}, of torch's samples of {_name(dtype)}, {said}"
                        break
                if found:
                    faults.append(found)
                    break
    more = f"; and {len(faults) - _TOLD} more operators" if len(faults) > _TOLD else ""
    require(not faults, "; ".join(faults[:_TOLD]) + more)
    require(
        compared,
        f"{device} refuses every operator of torch's database; expected some to run",
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _samples(
    op: Any, dtype: torch.dtype, most: int, *, strided: bool, backward: bool
) -> Iterator[Any]:
    types = (
        op.supported_backward_dtypes("cpu") if backward else op.supported_dtypes("cpu")
    )
    if dtype not in types or (backward and not op.supports_autograd):
        return
    torch.manual_seed(0)
    with _quiet():
        try:
            # Not `op.sample_inputs`: that searches the stack for the running test, for milliseconds.
            every = list(op.sample_inputs_func(op, "cpu", dtype, backward))
        except Exception:
            return  # none can be made for the processor
    for sample in every[:: max(1, -(-len(every) // most))]:
        if not strided:
            yield sample
        elif all(
            each.layout is torch.strided
            for each in leaves((sample.input, sample.args, sample.kwargs))
        ):
            spread = sample.noncontiguous()
            other = _from_the_end(sample.noncontiguous())
            expected, found = (
                _tried(forward, op, each, _HOST) for each in (spread, other)
            )
            same = expected and found and not any(map(differs, found, expected))
            yield other if same else spread  # where it is not, no dimension was named


def _from_the_end(sample: Any) -> Any:
    """Name dimensions from the last one, where one may be named: `dim=0` of two becomes `dim=-2`."""
    if not isinstance(sample.input, torch.Tensor):
        return sample
    count = sample.input.dim()

    def turned(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(turned, value))
        return value - count if type(value) is int and 0 <= value < count else value

    first = next(
        (n for n, each in enumerate(sample.args) if type(each) in (int, tuple, list)),
        None,
    )
    sample.args = tuple(
        turned(each) if n == first else each for n, each in enumerate(sample.args)
    )
    sample.kwargs = {
        name: turned(each) if name.startswith("dim") else each
        for name, each in sample.kwargs.items()
    }
    return sample


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _compared(turn: Turn, op: Any, sample: Any, device: torch.device) -> str | None:
    """How the device's result differs; empty if it does not, `None` if there is none of one of the two."""
    expected = _tried(turn, op, sample, _HOST)
    now = None if expected is None else _tried(turn, op, sample, device)
    if expected is None or now is None:
        return None
    said = next(
        filter(
            None,
            (
                differs(one, other, _BOUND)
                for one, other in zip(now, expected, strict=False)
            ),
        ),
        "",
    )
    if len(now) != len(expected):
        said = f"gives {len(now)} results; expected {len(expected)}"
    if (
        not said
        or _draws(turn, op, sample, expected)
        or _rounds(turn, op, sample, expected)
    ):
        return ""
    return said + blamed(lambda: turn(op, sample, device))


def _tried(turn: Turn, op: Any, sample: Any, device: torch.device) -> list[Any] | None:
    torch.manual_seed(1)
    with _quiet():
        try:
            found = pytree.tree_leaves(turn(op, sample, device))
            return [
                each.detach().cpu() if isinstance(each, torch.Tensor) else each
                for each in found
            ]
        except (Exception, unittest.SkipTest):
            return None


def _draws(turn: Turn, op: Any, sample: Any, expected: list[Any]) -> bool:
    """Whether the processor gives other numbers from other seeds, those that the database sets included."""
    for more in range(1, 17):  # some draw of two numbers alone
        with _seeds_of_the_host(more):
            again = _tried(turn, op, sample, _HOST)
        if again is None or any(
            differs(*pair, 0.0) for pair in zip(again, expected, strict=True)
        ):
            return True
    return False


def _rounds(turn: Turn, op: Any, sample: Any, expected: list[Any]) -> bool:
    """Whether the processor's own result is far from its result in float64: the sample is ill-conditioned."""

    def wider(tensor: torch.Tensor) -> torch.Tensor:
        dtype = {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(
            tensor.dtype
        )
        return (
            tensor.detach().to(dtype).requires_grad_(tensor.requires_grad)
            if dtype
            else tensor
        )

    exact = _tried(
        lambda *given: turn(given[0], given[1].transform(wider), given[2]),
        op,
        sample,
        _HOST,
    )
    return exact is not None and any(
        differs(own, other.to(own.dtype), _BOUND / 20)
        for own, other in zip(expected, exact, strict=True)
        if isinstance(own, torch.Tensor)
        and own.shape == other.shape  # memory may be laid out otherwise
    )


def _seeds_of_the_host(more: int) -> Any:
    """Have `torch.manual_seed` seed the host alone: for devices that are not here it keeps each stack."""
    seeded = torch.default_generator.manual_seed
    return mock.patch.object(torch, "manual_seed", lambda seed: seeded(seed + more))


def _words(op: Any, sample: Any) -> str:
    given = [_word(each) for each in (sample.input, *sample.args)]
    given += [f"{name}={_word(each)}" for name, each in sample.kwargs.items()]
    return f"{op.name}({', '.join(given)})"


def _word(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)) and leaves(value):
        return f"{len(value)} tensors"
    return repr(value)[:60]


def arguments(transfer: Transfer, op: Any, sample: Any) -> tuple[Any, Any, Any]:
    """Return the sample's input, arguments and keywords, moved by `transfer`."""
    if op.name in _ON_THE_HOST:
        return transfer(sample.input), sample.args, sample.kwargs
    return transfer(sample.input), transfer(sample.args), transfer(sample.kwargs)


def made_on(device: torch.device, sample: Any) -> Any:
    """Have what is made without a tensor or a device to go by be made on the device."""
    alone = (
        not leaves((sample.input, sample.args, sample.kwargs))
        and "device" not in sample.kwargs
    )
    return device if alone and device.type != "cpu" else nullcontext()


def forward(op: Any, sample: Any, device: torch.device) -> Any:
    """Call the operator; what is defined but for a sign is made comparable as torch's own tests do."""
    given, args, kwargs = arguments(Transfer(device, gradients=False), op, sample)
    with torch.no_grad(), made_on(device, sample):
        made = op(given, *args, **kwargs)
    return (
        sample.output_process_fn_grad(made) if sample.output_process_fn_grad else made
    )


def gradients(op: Any, sample: Any, device: torch.device) -> Any:
    """Return the gradients of the arguments, of weights that are not all the same."""
    given, args, kwargs = arguments(Transfer(device), op, sample)
    inputs = [each for each in leaves((given, args, kwargs)) if each.requires_grad]
    made = op(given, *args, **kwargs)
    if sample.output_process_fn_grad:
        made = sample.output_process_fn_grad(made)
    outputs = [each for each in leaves(made) if each.requires_grad]
    return torch.autograd.grad(
        outputs, inputs, [weights(each) for each in outputs], allow_unused=True
    )


def gradients_in_place(op: Any, sample: Any, device: torch.device) -> Any:
    """Return the gradients of the form in place, of a copy: kernels may take its result for the input."""
    given, args, kwargs = arguments(Transfer(device), op, sample)
    inputs = [each for each in leaves((given, args, kwargs)) if each.requires_grad]
    made = given.clone()
    op.inplace_variant(made, *args, **kwargs)
    return torch.autograd.grad(made, inputs, weights(made), allow_unused=True)


def weights(made: torch.Tensor) -> torch.Tensor:
    """Return a gradient for `made`, whose numbers are not all the same."""
    if made.layout != torch.strided:
        return torch.ones_like(made)
    numbers = (
        torch.arange(made.numel(), dtype=torch.float32).remainder_(7).add_(1).div_(8)
    )
    return numbers.reshape(made.shape).to(made.dtype).to(made.device)


def written(op: Any, sample: Any, device: torch.device) -> Any:
    """Return all memory that the operator could reach in its form in place."""
    transfer = Transfer(device, gradients=False)
    given, args, kwargs = arguments(transfer, op, sample)
    with torch.no_grad():
        op.inplace_variant(given, *args, **kwargs)
    return transfer.storages


def written_into(op: Any, sample: Any, device: torch.device) -> Any:
    """Return what the operator writes into `out`, with the memory before and behind it.

    Not every kernel of torch's own writes rightly into a strided `out`, so this one is in one piece; what the
    processor does not write is not compared.
    """
    with torch.no_grad():
        given, args, kwargs = arguments(Transfer(_HOST, gradients=False), op, sample)
        made = op(given, *args, **kwargs)
        parts = leaves(made)
        if (
            sample.output_process_fn_grad
            and sample.output_process_fn_grad(made) is not made
        ):
            raise RuntimeError("several results are right")
        room = [
            torch.full((3, *each.shape), 3, dtype=each.dtype, device=device)
            for each in parts
        ]
        out = [each[1] for each in room]
        given, args, kwargs = arguments(Transfer(device, gradients=False), op, sample)
        with made_on(device, sample):
            op(
                given,
                *args,
                **kwargs,
                out=out[0] if isinstance(made, torch.Tensor) else tuple(out),
            )
    if device.type == "cpu" and any(map(differs, out, parts)):
        raise RuntimeError(
            f"torch itself does not write the result of {op.name} into `out`"
        )
    return room


def several(op: Any, sample: Any, device: torch.device) -> Any:
    """Return what an operator of many tensors at once gives, and their memory after it ran in place."""
    found: list[Any] = []
    for variant in (op.method_variant, op.inplace_variant):
        if variant:
            transfer = Transfer(device, gradients=False)
            given, args, kwargs = arguments(transfer, op, sample)
            with torch.no_grad():
                made = variant(given, *args, **kwargs)
            found += [made, *transfer.storages]
    return found


_SAID: dict[Turn, str] = {
    gradients: "the gradient of ",
    gradients_in_place: "the gradient in place of ",
    written: "in place, ",
    written_into: "into `out`, ",
    several: "given or in place, ",
}
