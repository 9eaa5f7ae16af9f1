"""One broken accelerator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A promise that is broken by one override."""

    #: The check that is meant to catch it: `"answers.device_names"`.
    meant: str
    #: Members of the class, in the place of those that are whole.
    members: dict[str, Any]


def given(value: Any) -> Callable[..., Any]:
    """A member that gives this value whatever it is asked."""
    return lambda self, *args, **kwargs: value


def raising(error: type[BaseException]) -> Callable[..., Any]:
    """A member that raises."""

    def member(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise error("broken on purpose")

    return member


def changed(change: Callable[[Any], Any]) -> Callable[[str], Callable[..., Any]]:
    """A member whose answer is changed; called with the member's name when the class is made."""

    def named(name: str) -> Callable[..., Any]:
        def member(self: Any, *args: Any, **kwargs: Any) -> Any:
            return change(getattr(super(type(self), self), name)(*args, **kwargs))

        return member

    named.needs_name = True  # type: ignore[attr-defined]
    return named
