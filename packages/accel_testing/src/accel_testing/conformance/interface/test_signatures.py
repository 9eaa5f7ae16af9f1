"""Checks that an accelerator class has the members and signatures of `Accelerator`."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from typing import Any

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require

__all__ = ["TestSignatures"]


class TestSignatures(BackendTestBase):
    """Callers rely on the signatures of `Accelerator`; a subclass may accept more calls, but not fewer."""

    def test_members_are_there(self, accelerator: Accelerator) -> None:
        """Every member exists, so that code for one device raises no AttributeError on another device."""
        members = [name for name in dir(Accelerator) if not name.startswith("_")]
        missing = [name for name in members if _kind(type(accelerator), name) is None]
        require(not missing, f"the class does not have {', '.join(missing)}")

    def test_members_keep_their_kind(self, accelerator: Accelerator) -> None:
        """Methods stay methods and attributes stay attributes, because callers add parentheses or not."""
        for name in _overridden(type(accelerator)):
            in_interface = _kind(Accelerator, name)
            in_class = _kind(type(accelerator), name)
            require(
                in_interface == in_class,
                f"{name} is a {in_class} in the class, but a {in_interface} in the interface",
            )

    def test_signatures_take_what_the_interface_takes(
        self, accelerator: Accelerator
    ) -> None:
        """An overridden member accepts every argument of the interface, by position and by name."""
        problems = []
        for name, in_interface, in_class in _overridden_methods(type(accelerator)):
            interface = inspect.signature(in_interface)
            signature = inspect.signature(in_class)
            problems += [
                f"{name}{signature}: {problem}; the interface has {interface}"
                for problem in _refused_calls(interface, signature)
            ]
        require(not problems, "; ".join(problems))


def _overridden(accelerator_class: type) -> Iterator[str]:
    """Yield the names of the interface's members that the class overrides."""
    for name in dir(Accelerator):
        in_class = inspect.getattr_static(accelerator_class, name, None)
        in_interface = inspect.getattr_static(Accelerator, name)
        is_overridden = in_class is not None and in_class is not in_interface
        if is_overridden and not name.startswith("_"):
            yield name


def _kind(accelerator_class: type, name: str) -> str | None:
    """Return `"method"` or `"attribute"`; `None` if the class has no such member."""
    member = inspect.getattr_static(accelerator_class, name, None)
    if member is None:
        return None
    if inspect.isfunction(member) or isinstance(member, staticmethod):
        return "method"
    # A vendor's class may replace a property that returns this class.
    return "attribute"


def _overridden_methods(accelerator_class: type) -> Iterator[tuple[str, Any, Any]]:
    """Yield each overridden method's name, its function in the interface, and its function in the class."""
    for name in _overridden(accelerator_class):
        in_interface = inspect.getattr_static(Accelerator, name)
        in_class = inspect.getattr_static(accelerator_class, name)
        if inspect.isfunction(in_interface) and inspect.isfunction(in_class):
            yield name, in_interface, in_class


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_NAMED = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _refused_calls(
    interface: inspect.Signature, signature: inspect.Signature
) -> Iterator[str]:
    """Yield why a function with `signature` rejects a call that the signature `interface` accepts."""
    for position, parameter in enumerate(interface.parameters.values()):
        if parameter.name != "self":
            problem = _parameter_problem(position, parameter, signature)
            if problem:
                yield problem
    for name, parameter in signature.parameters.items():
        is_required = parameter.kind in _NAMED and parameter.default is parameter.empty
        if is_required and name not in interface.parameters:
            yield f"{name} is required"


def _parameter_problem(
    position: int, parameter: inspect.Parameter, signature: inspect.Signature
) -> str:
    """Return why `signature` does not accept a parameter of the interface; empty if it is accepted."""
    kinds = {accepted.kind for accepted in signature.parameters.values()}
    if parameter.kind in _VARIADIC:
        return "" if parameter.kind in kinds else f"it does not accept {parameter}"
    by_position = _needs_position(parameter, kinds)
    name = parameter.name
    accepted = signature.parameters.get(name)
    if accepted is None:
        if by_position or inspect.Parameter.VAR_KEYWORD not in kinds:
            return f"it does not accept {name}"
        return ""
    if _is_required_but_optional(accepted, parameter):
        return f"{name} has no default"
    if by_position and not _is_at(position, name, signature):
        return f"{name} is not argument number {position}"
    return ""


def _needs_position(parameter: inspect.Parameter, kinds: Collection[Any]) -> bool:
    """Return whether the parameter needs a position in a signature with parameters of these kinds."""
    has_var_positional = inspect.Parameter.VAR_POSITIONAL in kinds
    return parameter.kind in _POSITIONAL and not has_var_positional


def _is_required_but_optional(
    accepted: inspect.Parameter, parameter: inspect.Parameter
) -> bool:
    """Return whether `parameter` is optional in the interface, but `accepted` in the class is not."""
    is_optional = parameter.default is not parameter.empty
    return is_optional and accepted.default is accepted.empty


def _is_at(position: int, name: str, signature: inspect.Signature) -> bool:
    """Return whether the positional parameter at `position` has this name."""
    positional = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.kind in _POSITIONAL
    ]
    return positional[position : position + 1] == [name]
