"""`hookimpl`: marks a plugin's functions as implementations of the hooks of `accel_core.hookspecs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from accel_core.backend import PROJECT

__all__ = ["hookimpl"]

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def hookimpl(function: Function) -> Function: ...
@overload
def hookimpl(
    function: None = None,
    hookwrapper: bool = False,
    optionalhook: bool = False,
    tryfirst: bool = False,
    trylast: bool = False,
    specname: str | None = None,
    wrapper: bool = False,
) -> Callable[[Function], Function]: ...
def hookimpl(
    function: Function | None = None,
    hookwrapper: bool = False,
    optionalhook: bool = False,
    tryfirst: bool = False,
    trylast: bool = False,
    specname: str | None = None,
    wrapper: bool = False,
) -> Function | Callable[[Function], Function]:
    """Mark a function of a plugin as an implementation of one of the hooks of `accel_core.hookspecs`.

    It does what `pluggy.HookimplMarker("accel")` does, options included, without importing pluggy, for
    which a process that only looks at declarations has no use.
    """

    def mark(function: Function) -> Function:
        options = {
            "wrapper": wrapper,
            "hookwrapper": hookwrapper,
            "optionalhook": optionalhook,
            "tryfirst": tryfirst,
            "trylast": trylast,
            "specname": specname,
        }
        setattr(function, f"{PROJECT}_impl", options)
        return function

    return mark if function is None else mark(function)
