"""Operators on the device and on the processor: what differs, and which kernel does."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from accel_core import Accelerator
from accel_testing.conformance.claims import require

__all__ = [
    "BOUNDS",
    "Operators",
    "blamed",
    "claimed_types",
    "differs",
    "gradient",
    "hold",
]

#: How far a result may be from the one in float64, relative to the largest number in it: a few units in the
#: last place of each type, times what sums of some hundred numbers add to it.
BOUNDS = {
    torch.float64: 1e-12,
    torch.float32: 2e-5,
    torch.float16: 8e-3,
    torch.bfloat16: 6e-2,
}
#: Of float32 in the checks that compare single numbers.
_NEAR = 1e-4
#: What is smaller is noise about zero.
_LEAST = 1e-2
_MOST = 4

#: From tensors to a tensor or several, by the words for a person: `"amax(1)"`.
Operators = Mapping[str, Callable[..., Any]]


def claimed_types(accelerator: Accelerator) -> list[torch.dtype]:
    """Return the floating types that the device claims, float32 first."""
    more = [torch.float64] if accelerator.is_fp64_supported() else []
    return [*accelerator.supported_dtypes(), *more]


def gradient(
    work: Callable[[torch.Tensor], torch.Tensor], at: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of the number that `work` makes of `at`."""
    point = at.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    (found,) = torch.autograd.grad(work(point), point)
    return found


def hold(
    accelerator: Accelerator,
    operators: Operators,
    *given: torch.Tensor,
    way: str = "",
    reference: torch.dtype | None = None,
    view: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.contiguous,
    needed: bool = False,
    index: int | None = None,
) -> None:
    """Raise `BrokenPromise` unless each operator gives on the device what it gives on the processor.

    On the processor floating numbers are computed in `reference`, or in their own type. An operator that the
    device lacks is left out unless it is `needed`: one that is not there for ordinary numbers either. `way`
    says what is special about the numbers.
    """
    device = accelerator.device(index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of operators that it may change
        faults = list(
            _faults(device, operators, given, way, reference, view, needed=needed)
        )
    more = f"; and {len(faults) - _MOST} more" if len(faults) > _MOST else ""
    require(not faults, "; ".join(faults[:_MOST]) + more)


def _faults(
    device: torch.device,
    operators: Operators,
    given: tuple[torch.Tensor, ...],
    way: str,
    reference: torch.dtype | None,
    view: Callable[[torch.Tensor], torch.Tensor],
    *,
    needed: bool,
) -> Iterator[str]:
    here = [view(each.to(device)) for each in given]
    there = [view(_wider(each, reference)) for each in given]
    kind = given[0].dtype
    for name, operator in operators.items():
        what = f"{name} of {str(kind).removeprefix('torch.')}" + (
            f", {way}," if way else ""
        )
        theirs = pytree.tree_leaves(
            operator(*there)
        )  # first: what the processor refuses too is our mistake
        try:
            ours = _results(operator, here)
        except Exception as error:
            if needed or _works(operator, here):
                yield f"{what} raises {type(error).__name__}: {str(error)[:150]}{blamed(operator, *here)}"
            continue
        for place, (now, expected) in enumerate(zip(ours, theirs, strict=True)):
            part = what if len(ours) == 1 else f"{what} result {place}"
            fault = differs(now, expected, kind=kind if reference else None)
            if fault:
                yield f"{part} {fault}{blamed(operator, *here)}"
                break


def _wider(tensor: torch.Tensor, reference: torch.dtype | None) -> torch.Tensor:
    return tensor.to(reference) if reference and tensor.is_floating_point() else tensor


def _results(operator: Callable[..., Any], here: list[torch.Tensor]) -> list[Any]:
    """Results on the host: some devices compute, and fail, as late as that."""
    found = pytree.tree_leaves(operator(*here))
    return [
        each.detach().cpu() if isinstance(each, torch.Tensor) else each
        for each in found
    ]


def _works(operator: Callable[..., Any], here: list[torch.Tensor]) -> bool:
    """Whether the device does this with ordinary numbers."""
    try:
        _results(
            operator,
            [each.nan_to_num() if each.is_floating_point() else each for each in here],
        )
    except Exception:
        return False
    return True


def differs(
    now: Any,
    expected: Any,
    bound: float | None = None,
    *,
    kind: torch.dtype | None = None,
) -> str:
    """Say how a result differs from the expected one; empty if it does not.

    `kind` is the type that floating results have. `bound` is how far a number may be off, as a part of the
    largest; without it that of the type.
    """
    if not isinstance(expected, torch.Tensor):
        same = now == expected or (now != now and expected != expected)  # NaN
        return "" if same else f"gives {now!r}; expected {expected!r}"
    dtype = kind if kind and expected.is_floating_point() else expected.dtype
    if now.shape != expected.shape or now.dtype is not dtype:
        return f"gives {tuple(now.shape)} of {now.dtype}; expected {tuple(expected.shape)} of {dtype}"
    if now.layout is not expected.layout:
        return f"gives {now.layout}; expected {expected.layout}"
    now, expected = _plain(now), _plain(expected)
    if torch.equal(now, expected):
        return ""
    wrong = ~_close(now, expected, bound)
    if not wrong.any():
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    at = f" at {list(place)}" if place else ""
    return f"gives {now[place].item()}{at}; expected {expected[place].item()}"


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return (
        torch.view_as_real(tensor.resolve_conj().resolve_neg())
        if tensor.is_complex()
        else tensor
    )


def _close(
    now: torch.Tensor, expected: torch.Tensor, bound: float | None
) -> torch.Tensor:
    if not expected.is_floating_point():
        return now == expected
    own = _NEAR if now.dtype in (torch.float32, torch.float64) else BOUNDS[now.dtype]
    finite = expected[expected.isfinite()]
    whole = finite.numel() and (bound is not None or own > _NEAR)
    largest = max(float(finite.abs().max()), _LEAST) if whole else 1.0
    bound = own if bound is None else bound
    now = now.to(expected.dtype)
    return torch.isclose(
        now, expected, rtol=bound, atol=bound * largest, equal_nan=True
    )


def blamed(operator: Callable[..., Any], *here: torch.Tensor) -> str:
    """Return which of the kernels that `operator` runs is the first that differs from the processor's.

    `here` are its arguments on the device. It is asked once something is wrong, and the operator runs again.
    """
    watch = _Watch()
    try:
        with watch:
            operator(*here)
    except Exception as error:
        if watch.last:
            return f" (in aten::{watch.last}, {type(error).__name__})"
    if watch.found:
        return f" (the kernel that differs is aten::{watch.found})"
    names = ", ".join(f"aten::{name}" for name in dict.fromkeys(watch.ran))
    return f" (it runs {names})" if names else ""


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Compares each kernel with the processor's, given the same."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ran: list[str] = []
        self.last = self.found = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = self.last = func.name().removeprefix("aten::")
        host = pytree.tree_map(_on_host, (args, kwargs))
        given = func(*args, **kwargs)
        self.last = ""
        self.ran.append(name)
        if (
            self.found
            or torch.Tag.nondeterministic_seeded in func.tags
            or name.startswith("empty")
        ):
            return given
        try:
            expected = func(*host[0], **host[1])
            ours = [_on_host(each) for each in pytree.tree_leaves((given, args))]
            theirs = pytree.tree_leaves((expected, host[0]))
        except Exception:
            return given  # the processor has no such kernel
        if any(differs(now, then) for now, then in zip(ours, theirs, strict=False)):
            self.found = name
        return given


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if not isinstance(value, torch.Tensor):
        return value
    return (
        value.detach().clone() if value.device.type == "cpu" else value.detach().cpu()
    )
