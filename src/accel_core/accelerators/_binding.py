"""How a vendor's function becomes a member: as it is where the calls are the same, else renamed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["accepts", "by_index", "delegate", "has_parameter", "or_default"]

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
    """Whether `function` takes every call that `member`, unbound, documents: same names, same places."""
    theirs, ours = parameters(function), (parameters(member) or [])[1:]  # without self
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
    function: _Function, current: Callable[[], int], guard: Callable[[int], AbstractContextManager[Any]]
) -> _Function:
    """`function(device)` as `member(device_index=None)`.

    A function that needs a device is given the current one, and one that takes none runs with the
    device selected.
    """
    places = parameters(function)
    places = None if places is None else [p for p in places if p.kind in _POSITIONAL]

    def optional(device_index: int | None = None) -> Any:
        # The vendor's own default stands for the current device: `None`, or a string such as "cuda".
        return function() if device_index is None else function(device_index)

    def needed(device_index: int | None = None) -> Any:
        return function(current() if device_index is None else device_index)

    def absent(device_index: int | None = None) -> Any:
        if device_index is None:
            return function()
        with guard(device_index):
            return function()

    if places is None:
        return optional
    if not places:
        return absent
    return needed if places[0].default is inspect.Parameter.empty else optional


def or_default(function: _Function, default: _Function) -> _Function:
    """`function`, and `default` where it raises `RuntimeError`: torch's word for "not on this device"."""

    def member(device_index: int | None = None) -> Any:
        try:
            return function() if device_index is None else function(device_index)
        except RuntimeError:
            return default() if device_index is None else default(device_index)

    return member


def delegate(name: str, member: _Function) -> _Function:
    """A method that calls what the instance found at the vendor for `name`, with `member`'s signature.

    It is what `super().name()` reaches from an override, and what serves where nothing could be bound.
    """

    def plain(self: Any) -> Any:
        return self._vendor[name]()

    def indexed(self: Any, device_index: int | None = None) -> Any:
        return self._vendor[name](device_index)

    return functools.wraps(member)(plain if len(parameters(member) or ()) == 1 else indexed)
