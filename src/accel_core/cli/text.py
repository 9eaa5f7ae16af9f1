"""Words and styles that the commands share, and whose word a verdict is."""

from __future__ import annotations

from collections.abc import Iterable

from accel_core._support.packages import brought_by
from accel_core.detection import Status, Verdict, messages
from accel_core.errors import clean as clean  # noqa: PLC0414 - the commands take it from here

#: The heading above what torch's autoload spoils.
AUTOLOAD = "Programs that import torch first"

#: Not probed, or blocked by the user: nothing that anybody has to mend.
_UNJUDGED = (Status.NOT_PROBED, Status.BLOCKED)


def style(verdict: Verdict) -> str:
    """Return the style of a status: green if usable, red if broken, plain if nothing is there."""
    if verdict.usable:
        return "green"
    if verdict.status.is_failure:
        return "red"
    return "dim" if verdict.status in _UNJUDGED else "yellow"


def vendor_packages(verdict: Verdict) -> list[dict[str, str]]:
    """Return the installed packages that bring the device into torch, read from their metadata."""
    found = ((module, *brought_by(module)) for module in verdict.vendor_import)
    keys = ("module", "distribution", "version")
    return [dict(zip(keys, each, strict=True)) for each in found if each[1]]


def described(verdict: Verdict) -> dict[str, object]:
    """Return the verdict for JSON, with the versions of the vendor's installed packages."""
    return {**verdict.to_dict(), "vendor_packages": vendor_packages(verdict)}


def uninstalled(verdicts: Iterable[Verdict]) -> str:
    """Return one line for the backends that lack only a package; empty if there are none."""
    line = messages.uninstalled(verdicts)
    return f"{line[:1].upper()}{line[1:]}"


def count(number: int, noun: str) -> str:
    """`"1 device"`, `"8 devices"`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
