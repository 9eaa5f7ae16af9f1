"""The members of an accelerator's class against those of `Accelerator`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require

__all__ = ["TestSignatures"]


class TestSignatures(BackendTestBase):
    """Callers rely on the signatures of `Accelerator`; a subclass may accept more, but not less."""

    def test_members_are_there(self, accelerator: Accelerator) -> None:
        """Every member of the interface exists: code for one device meets no AttributeError on another."""
        members = [name for name in dir(Accelerator) if not name.startswith("_")]
        missing = [name for name in members if _kind(type(accelerator), name) is None]
        require(not missing, f"the class has no {', '.join(missing)}")

    def test_members_keep_their_kind(self, accelerator: Accelerator) -> None:
        """A method stays a method and an attribute an attribute, so callers' parentheses stay right."""
        for name in _overridden(type(accelerator)):
            ours, theirs = _kind(Accelerator, name), _kind(type(accelerator), name)
            require(
                ours == theirs,
                f"{name} is a {theirs} in the class, and a {ours} in the interface",
            )

    def test_signatures_take_what_the_interface_takes(
        self, accelerator: Accelerator
    ) -> None:
        """An overridden member accepts every argument of the interface, by position and by name."""
        faults = [
            f"{name}{inspect.signature(theirs)}: {fault}; the interface has {inspect.signature(ours)}"
            for name, ours, theirs in _methods(type(accelerator))
            for fault in _narrower(inspect.signature(ours), inspect.signature(theirs))
        ]
        require(not faults, "; ".join(faults))


def _overridden(kind: type) -> Iterator[str]:
    for name in dir(Accelerator):
        theirs = inspect.getattr_static(kind, name, None)
        ours = inspect.getattr_static(Accelerator, name)
        if not name.startswith("_") and theirs is not None and theirs is not ours:
            yield name


def _kind(kind: type, name: str) -> str | None:
    found = inspect.getattr_static(kind, name, None)
    if found is None:
        return None
    # A vendor's class in the place of a property gives the same as the property would.
    return (
        "method"
        if inspect.isfunction(found) or isinstance(found, staticmethod)
        else "attribute"
    )


def _methods(kind: type) -> Iterator[tuple[str, Any, Any]]:
    for name in _overridden(kind):
        ours = inspect.getattr_static(Accelerator, name)
        theirs = inspect.getattr_static(kind, name)
        if inspect.isfunction(ours) and inspect.isfunction(theirs):
            yield name, ours, theirs


_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)
_NAMED = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)


def _narrower(ours: inspect.Signature, theirs: inspect.Signature) -> Iterator[str]:
    """Name each call that a function of signature `ours` takes and one of `theirs` refuses."""
    taken = theirs.parameters
    kinds = {parameter.kind for parameter in taken.values()}
    places = [
        name for name, parameter in taken.items() if parameter.kind in _POSITIONAL
    ]
    for place, (name, parameter) in enumerate(ours.parameters.items()):
        if name == "self":
            continue
        by_place = (
            parameter.kind in _POSITIONAL
            and inspect.Parameter.VAR_POSITIONAL not in kinds
        )
        if parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            if parameter.kind not in kinds:
                yield f"it does not take {parameter}"
        elif name not in taken:
            if inspect.Parameter.VAR_KEYWORD not in kinds or by_place:
                yield f"it takes no {name}"
        elif (
            parameter.default is not parameter.empty
            and taken[name].default is inspect.Parameter.empty
        ):
            yield f"{name} has no default"
        elif by_place and places[place : place + 1] != [name]:
            yield f"{name} is not its argument number {place}"
    for name, parameter in taken.items():
        if (
            name not in ours.parameters
            and parameter.kind in _NAMED
            and parameter.default is parameter.empty
        ):
            yield f"{name} must be given"
