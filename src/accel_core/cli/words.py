"""The words and styles that the commands share, for verdicts and for the choice. Knows nothing of rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.detection.records import Status, Verdict

if TYPE_CHECKING:
    from accel_core.detection.select import How

__all__ = ["clean", "count", "found", "how_chosen", "status", "style"]

_HOW = {
    "pinned": "pinned by DS_ACCELERATOR",
    "preferred": "the first usable one of DS_ACCELERATOR's list",
    "ranked": "the highest-ranking usable one",
    "fallback": "the fall-back, as nothing that ranks higher is usable",
}
_QUIET = (Status.NOT_PROBED, Status.BLOCKED)


def how_chosen(how: How) -> str:
    """How a backend came to be chosen, as a clause."""
    return _HOW[how.value]


def status(verdict: Verdict) -> str:
    """The verdict's status in words: `"no device"`."""
    return verdict.status.value.replace("_", " ")


def style(verdict: Verdict) -> str:
    """The style for the status: green is usable, red is broken, the rest is merely not there."""
    if verdict.usable:
        return "green"
    if verdict.status.is_failure:
        return "red"
    return "dim" if verdict.status in _QUIET else "yellow"


def found(verdict: Verdict) -> str:
    """What to say beside the status: the reason, else the devices, else what the backend is."""
    if verdict.reason or not verdict.usable:
        return clean(verdict.reason)
    return count(verdict.devices, "device") if verdict.devices else clean(verdict.description)


def count(number: int, noun: str) -> str:
    """`"1 device"`, `"8 devices"`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def clean(text: str) -> str:
    """`text` on one line and safe for a terminal: a plugin's message may hold anything."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
