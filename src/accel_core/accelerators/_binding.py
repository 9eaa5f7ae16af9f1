"""Functions that `TorchAccelerator` takes from torch and a vendor's module, and how one becomes a member.

A function stands in the member's place as it is where the calls are the same; else one of the functions below
is put in between.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch.types import Device

__all__ = [
    "ROWS",
    "Call",
    "Needs",
    "Row",
    "accepts",
    "by_index",
    "context_class",
    "delegate",
    "has_parameter",
    "natively",
]


class Call(Enum):
    """How a row is called, which decides what may stand in its place."""

    #: A member without arguments.
    PLAIN = auto()
    #: A member with `device_index=None`; vendors name that parameter otherwise, need it or lack it.
    INDEXED = auto()
    #: A member with an argument of its own, written out for the vendor whose function names it otherwise.
    OWN = auto()
    #: No member, but what methods build on, as it is; `None` where there is none.
    PART = auto()


class Needs(Enum):
    """Requirements of a row's function."""

    NOTHING = auto()
    #: torch's function works only for a device with an allocator of torch's kind, and says 0 before a start.
    ALLOCATOR = auto()
    #: torch's function ends the process where no page-locked memory is registered for the device.
    PAGES = auto()
    #: A stream class: without one, the one queue of the default serves.
    STREAMS = auto()
    #: To be bound as it is, a `StreamContext` beside it: torch's own modules and those that follow them have
    #: one, and it takes `None`; of others nobody knows that they do.
    STREAM_CONTEXT = auto()


class Row(NamedTuple):
    """One function of a vendor's module, `torch.<device_type>`."""

    #: Of the function, and of the member that it serves.
    name: str
    call: Call
    #: What `torch.accelerator` calls it; the newest torch that is read has it, an older one may not.
    in_torch: str = ""
    needs: Needs = Needs.NOTHING
    #: The vendor's function comes before torch's: it tells more, or is what torch's own calls.
    vendor_first: bool = False


#: Everything that is looked up once, at construction.
ROWS = (
    Row("current_device", Call.PLAIN, "current_device_index"),
    Row("device_count", Call.PLAIN, "device_count", vendor_first=True),
    Row("empty_cache", Call.PLAIN, "empty_cache", Needs.ALLOCATOR),
    Row("empty_host_cache", Call.PLAIN, "empty_host_cache", Needs.PAGES, vendor_first=True),
    Row("initial_seed", Call.PLAIN, "random.initial_seed"),
    Row("is_current_stream_capturing", Call.PLAIN),
    Row("is_initialized", Call.PLAIN),
    Row("current_stream", Call.INDEXED, "current_stream", Needs.STREAMS, vendor_first=True),
    Row("default_stream", Call.INDEXED, needs=Needs.STREAMS),
    Row("get_rng_state", Call.INDEXED, "random.get_rng_state"),
    Row("max_memory_allocated", Call.INDEXED, "max_memory_allocated", Needs.ALLOCATOR),
    Row("max_memory_reserved", Call.INDEXED, "max_memory_reserved", Needs.ALLOCATOR),
    Row("mem_get_info", Call.INDEXED, "get_memory_info", Needs.ALLOCATOR),
    Row("memory_allocated", Call.INDEXED, "memory_allocated", Needs.ALLOCATOR),
    Row("memory_reserved", Call.INDEXED, "memory_reserved", Needs.ALLOCATOR),
    Row(
        "reset_accumulated_memory_stats",
        Call.INDEXED,
        "reset_accumulated_memory_stats",
        Needs.ALLOCATOR,
    ),
    Row("reset_peak_memory_stats", Call.INDEXED, "reset_peak_memory_stats", Needs.ALLOCATOR),
    Row("synchronize", Call.INDEXED, "synchronize"),
    Row("manual_seed", Call.OWN),
    Row("manual_seed_all", Call.OWN),
    Row("set_stream", Call.OWN, needs=Needs.STREAMS),
    Row("stream", Call.OWN, needs=Needs.STREAM_CONTEXT),
    Row("is_bf16_supported", Call.PART),
    Row("is_fp16_supported", Call.PART),
    Row("is_fp8_supported", Call.PART),
    Row("_lazy_call", Call.PART),
    Row("_lazy_init", Call.PART),
    Row("get_device_properties", Call.PART),
    Row("init", Call.PART),
    Row("memory_stats", Call.PART, "memory_stats", Needs.ALLOCATOR, vendor_first=True),
    Row("set_device", Call.PART, "set_device_index"),
    Row("set_per_process_memory_fraction", Call.PART),
    Row("set_rng_state", Call.PART),
)

_Function = Callable[..., Any]
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters(function: _Function) -> list[inspect.Parameter] | None:
    """The parameters of `function`; `None` where Python cannot tell, as for some of C's."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def has_parameter(function: _Function, name: str) -> bool:
    """Whether `function` is known to take an argument of that name."""
    return any(p.name == name for p in parameters(function) or ())


def accepts(function: _Function, member: _Function) -> bool:
    """Whether `function` takes every call that `member` documents: same names, same places."""
    theirs, ours = parameters(function), parameters(member) or []
    if theirs is None or len(theirs) < len(ours):
        return False
    required = inspect.Parameter.empty
    same = all(
        b.name == a.name and b.kind == a.kind and (a.default is required or b.default is not required)
        for a, b in zip(ours, theirs, strict=False)
    )
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return same and all(p.default is not required or p.kind in variadic for p in theirs[len(ours) :])


def by_index(
    function: _Function,
    checked: Callable[[Device], int],
    current: Callable[[], int],
    guard: Callable[[int], AbstractContextManager[Any]],
) -> _Function:
    """`function(device)` as `member(device_index=None)`, whose argument `checked` makes an index.

    A function that needs a device is given the current one, and one that takes none runs with the
    device selected.
    """
    places = parameters(function)
    places = None if places is None else [p for p in places if p.kind in _POSITIONAL]

    def optional(device_index: Device = None) -> Any:
        # The vendor's own default stands for the current device: `None`, or a string such as "cuda".
        return function() if device_index is None else function(checked(device_index))

    def needed(device_index: Device = None) -> Any:
        return function(current() if device_index is None else checked(device_index))

    def absent(device_index: Device = None) -> Any:
        if device_index is None:
            return function()
        with guard(checked(device_index)):
            return function()

    if places is None:
        return optional
    if not places:
        return absent
    return needed if places[0].default is inspect.Parameter.empty else optional


def natively(ask: _Function) -> bool:
    """A vendor's answer about a data type, without the emulation that several count by default."""
    return bool(ask(including_emulation=False) if has_parameter(ask, "including_emulation") else ask())


def context_class(value: Any) -> Any:
    """`value` where it is a class of context managers, as `torch.cuda.device` is; else `None`."""
    return value if inspect.isclass(value) and hasattr(value, "__enter__") else None


def delegate(name: str, member: _Function) -> _Function:
    """A method that calls what the instance keeps in `_vendor` for `name`, with `member`'s signature.

    It is what `super().name()` reaches from an override, and what serves where nothing could be bound.
    """

    def plain(self: Any) -> Any:
        return self._vendor[name]()

    def indexed(self: Any, device_index: Device = None) -> Any:
        return self._vendor[name](device_index)

    return functools.wraps(member)(plain if len(parameters(member) or ()) == 1 else indexed)
