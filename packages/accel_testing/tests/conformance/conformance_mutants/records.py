"""One broken accelerator."""

from typing import Any, NamedTuple


class Mutant(NamedTuple):
    """A promise that is broken by one override."""

    #: The check that is meant to catch it: `"answers.device_names"`.
    meant: str
    #: Members of the class, in the place of those that are whole.
    members: dict[str, Any]


def given(value):
    """A member that gives this value whatever it is asked."""
    return lambda self, *args, **kwargs: value


def raising(error):
    """A member that raises."""

    def member(self, *args, **kwargs):
        raise error("broken on purpose")

    return member


def changed(change):
    """A member whose answer is changed; called with the member's name when the class is made."""

    def named(name):
        def member(self, *args, **kwargs):
            return change(getattr(super(type(self), self), name)(*args, **kwargs))

        return member

    named.needs_name = True
    return named
