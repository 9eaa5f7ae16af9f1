"""Adapt the method signatures of every `Accelerator` subclass to the way in which torch
users call them.

A subclass may override members with `device_index` as the only parameter for a device.
torch's keywords are then added. Python's `TypeError` for an unexpected keyword contains
the member's name as users call it, and not the name of a private class or function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

Function = Callable[..., Any]


def set_name_in_errors(function: Any, member: str) -> None:
    """Make Python's error messages show the name that users call for `function`.

    From Python 3.13 on, such error messages also suggest the correct keyword.
    """
    function.__name__ = member
    function.__qualname__ = f"get_accelerator().{member}"


def set_member_names_in_errors(cls: type) -> None:
    """Apply `set_name_in_errors` to the public methods that the class body defines."""
    for name, function in vars(cls).items():
        if not _is_public_method(name, function):
            continue
        # A function that is only assigned to the class has another qualified name.
        is_defined_in_body = function.__qualname__ == f"{cls.__qualname__}.{name}"
        if is_defined_in_body:
            set_name_in_errors(function, name)


def add_torch_keywords(cls: type, interface: type) -> None:
    """Add torch's keywords to those overrides in `cls`, a subclass of `interface`, that lack them.

    An override may come from a base class outside the interface. An override with
    `*args`, `**kwargs` or keyword-only parameters is not changed.
    """
    for name, function in _overrides(cls, interface).items():
        if not _is_public_method(name, function) or not hasattr(interface, name):
            continue
        extended_function = _with_torch_keywords(name, function)
        if extended_function is not function:
            setattr(cls, name, extended_function)


def _is_public_method(name: str, attribute: Any) -> bool:
    return inspect.isfunction(attribute) and not name.startswith("_")


def _with_torch_keywords(name: str, function: Function) -> Function:
    """Return the override `function` of the member `name` with torch's keywords. Return
    `function` itself if it lacks none or cannot be wrapped.
    """
    parameters = inspect.signature(function).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    if kinds != {inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        return function
    _self, *names = parameters
    if names == ["device_index"]:
        return _with_device_keyword(function)
    if "device_index" in parameters and "device" not in parameters:
        return _with_added_device_keyword(function)
    if name == "is_bf16_supported" and "including_emulation" not in parameters:
        return _with_emulation_keyword(function)
    return function


def _overrides(cls: type, interface: type) -> dict[str, Any]:
    """Return the attributes that `cls`, or a base class outside the interface, defines.

    Classes of the interface have torch's keywords already.
    """
    overrides: dict[str, Any] = {}
    for base in cls.__mro__:
        if base is not cls and issubclass(base, interface):
            break
        for name, attribute in vars(base).items():
            overrides.setdefault(name, attribute)  # The first class in the MRO wins.
    return overrides


def _with_device_keyword(function: Function) -> Function:
    """Return `function(self, device_index)` as a member that also accepts `device`.

    The function always gets an index, because it may not support a `torch.device`.
    """

    @wraps(function)
    def member(self: Any, device_index: Any = None, device: Any = None) -> Any:
        if device is not None:
            device = self._merge_device_arguments(device_index, device)
            device_index = self._unchecked_index(device)
        return function(self, device_index)

    return _with_signature(member, inspect.signature(member, follow_wrapped=False))


def _with_added_device_keyword(function: Function) -> Function:
    """Return `function`, which has other parameters besides `device_index`, with the
    parameter `device` added.

    This wrapper is slower, but such members are not called in every step.
    """
    name = function.__qualname__
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    self_parameter = parameters[0]
    parameters.append(self_parameter.replace(name="device", default=None))
    signature = signature.replace(parameters=parameters)

    @wraps(function)
    def member(*args: Any, **options: Any) -> Any:
        try:
            bound = signature.bind(*args, **options)
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        bound.apply_defaults()
        device = bound.arguments.pop("device")
        if device is not None:
            accelerator = args[0]
            device_index = bound.arguments["device_index"]
            device = accelerator._merge_device_arguments(device_index, device)
            bound.arguments["device_index"] = accelerator._unchecked_index(device)
        return function(**bound.arguments)

    return _with_signature(member, signature)


def _with_emulation_keyword(function: Function) -> Function:
    """Return `function`, which is an `is_bf16_supported`, with torch's keyword
    `including_emulation` added.
    """

    @wraps(function)
    def is_bf16_supported(self: Any, including_emulation: bool = True) -> Any:
        if including_emulation:
            return function(self)
        return self.is_bf16_native()

    signature = inspect.signature(is_bf16_supported, follow_wrapped=False)
    return _with_signature(is_bf16_supported, signature)


def _with_signature(member: Any, signature: inspect.Signature) -> Function:
    """Return `member` with the given signature, and without a reference to the wrapped
    function.
    """
    del member.__wrapped__
    member.__signature__ = signature
    wrapper: Function = member
    return wrapper
