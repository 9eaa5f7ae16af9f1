"""`Check`: what a plugin looks into for `accel doctor`, what it says of it, and what it would do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["LEVELS", "Check", "CheckResult", "Fix"]

#: What a result can be: as it should be; it works, and not as somebody would expect; it does not work.
LEVELS = ("ok", "warning", "error")


class CheckResult(NamedTuple):
    """What a check found."""

    #: `"ok"`, `"warning"` or `"error"`.
    level: str
    #: One sentence without a full stop: "CANN's variables are not set".
    what: str
    #: The next command or step; empty where nothing is to be done.
    step: str = ""
    #: What was seen, by name.
    facts: Mapping[str, str] = MappingProxyType({})


class Fix(NamedTuple):
    """What would mend what a check found; nothing of it is done before a user has said yes."""

    #: What it would do, as a clause that follows "it would": "write /etc/acme.conf".
    what: str
    #: Does it, in a child process, as the user who runs the command; it may raise. The check follows anew.
    #: It must be safe: it can be done twice, loses nothing of the user's, and installs nothing.
    apply: Callable[[], object]


class Check(NamedTuple):
    """One thing that a plugin looks into."""

    #: For scripts, in lower case with hyphens: `"cann-variables"`.
    name: str
    #: For people: "CANN's variables".
    title: str
    #: Looks, and changes nothing; called in a child process. All checks together have the time of one probe.
    run: Callable[[], CheckResult]
    #: What would mend it, where anything safe does.
    fix: Fix | None = None
