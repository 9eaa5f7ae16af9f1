"""Calls as users of torch write them, on every subclass of `Accelerator`.

A subclass may override members with the parameters that DeepSpeed gave them; torch's
keywords are added. Python's `TypeError` for an unexpected keyword gives the member the
name by which users call it, and not that of a private class or function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

Function = Callable[..., Any]


def name_as_called(function: Any, member: str) -> None:
    """Have Python's errors about the arguments of `function` name it as users call it.

    From Python 3.13 on, they also suggest the keyword that was meant.
    """
    function.__name__ = member
    function.__qualname__ = f"get_accelerator().{member}"


def name_members_as_called(kind: type) -> None:
    """Apply `name_as_called` to the public methods that the class body defines."""
    for name, function in vars(kind).items():
        is_public_method = inspect.isfunction(function) and not name.startswith("_")
        if is_public_method and function.__qualname__ == f"{kind.__qualname__}.{name}":
            name_as_called(function, name)


def add_torch_keywords(kind: type, interface: type) -> None:
    """Replace overrides in `kind`, a subclass of `interface`, that lack torch's keywords
    by functions that take them.

    A base class outside the interface may define the override.
    """
    for name, function in _overrides(kind, interface).items():
        is_public_method = inspect.isfunction(function) and not name.startswith("_")
        if not is_public_method or not hasattr(interface, name):
            continue
        parameters = inspect.signature(function).parameters
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            continue  # it takes any keyword
        names = list(parameters)
        if "device_index" in names and "device" not in names:
            place = names.index("device_index")
            setattr(kind, name, _with_device(function, place))
        elif name == "is_bf16_supported" and "including_emulation" not in names:
            setattr(kind, name, _with_emulation(function))


def _overrides(kind: type, interface: type) -> dict[str, Any]:
    """What `kind`, and its bases before the interface's, define; those of the interface
    take the keywords already.
    """
    overrides: dict[str, Any] = {}
    for base in kind.__mro__:
        if base is not kind and issubclass(base, interface):
            break
        overrides = {**vars(base), **overrides}
    return overrides


def _with_device(function: Function, place: int) -> Function:
    """`function`, whose argument number `place` is `device_index`, with `device` too.

    The function gets an index: DeepSpeed's classes expect no `torch.device`.
    """

    @wraps(function)
    def member(self: Any, *args: Any, device: Any = None, **options: Any) -> Any:
        if device is None:
            return function(self, *args, **options)
        arguments = [self, *args]
        if len(arguments) > place:
            one = self._one_device(arguments[place], device)
            arguments[place] = self._device_number(one)
        else:
            one = self._one_device(options.get("device_index"), device)
            options["device_index"] = self._device_number(one)
        return function(*arguments, **options)

    signature = inspect.signature(function)
    keyword = inspect.Parameter("device", inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = [*signature.parameters.values(), keyword]
    return _with_signature(member, signature.replace(parameters=parameters))


def _with_emulation(function: Function) -> Function:
    """`function`, an `is_bf16_supported`, with torch's keyword."""

    @wraps(function)
    def member(self: Any, including_emulation: bool = True) -> Any:
        return function(self) if including_emulation else self.is_bf16_native()

    return _with_signature(member, None)


def _with_signature(member: Any, signature: inspect.Signature | None) -> Function:
    """`member`, which is not known to wrap a function with another signature."""
    del member.__wrapped__
    member.__signature__ = signature or inspect.signature(member)
    wrapper: Function = member
    return wrapper
