"""Words and styles that the commands share, and whose word a verdict is."""

from __future__ import annotations

from collections.abc import Iterable

from accel_core._support.packages import brought_by
from accel_core.detection import Status, Verdict
from accel_core.errors import clean

__all__ = [
    "AUTOLOAD", "clean", "count", "described", "remark", "style", "uninstalled", "vendor_packages",
]  # fmt: skip

#: The heading above what torch's autoload spoils.
AUTOLOAD = "Programs that import torch first"

#: Not probed, or blocked by the user: nothing that anybody has to mend.
_UNJUDGED = (Status.NOT_PROBED, Status.BLOCKED)


def style(verdict: Verdict) -> str:
    """The style for the status: green is usable, red is broken, the rest is merely not there."""
    if verdict.usable:
        return "green"
    if verdict.status.is_failure:
        return "red"
    return "dim" if verdict.status in _UNJUDGED else "yellow"


def remark(verdict: Verdict) -> str:
    """Text beside the status: the reason, else the devices, else a description of the backend."""
    if verdict.reason or not verdict.usable:
        return clean(verdict.reason)
    return count(verdict.devices, "device") if verdict.devices else clean(verdict.description)


def vendor_packages(verdict: Verdict) -> list[dict[str, str]]:
    """Installed packages that bring the device into torch, from their metadata."""
    found = ((module, *brought_by(module)) for module in verdict.vendor_import)
    keys = ("module", "distribution", "version")
    return [dict(zip(keys, each, strict=True)) for each in found if each[1]]


def described(verdict: Verdict) -> dict[str, object]:
    """The verdict as JSON can hold it, with the vendor's packages as they are installed."""
    return {**verdict.to_dict(), "vendor_packages": vendor_packages(verdict)}


def uninstalled(verdicts: Iterable[Verdict]) -> str:
    """One line for backends of which only a package is missing; empty without any."""
    of_torch: dict[bool, dict[str, None]] = {}
    for verdict in verdicts:
        of_torch.setdefault(verdict.vendor_import == ("torch",), {})[clean(verdict.name)] = None
    parts = (
        f"{'need torch' if torch else 'vendor package not installed'}: {', '.join(names)}"
        for torch, names in of_torch.items()
    )
    line = "; ".join(parts)
    return f"{line[:1].upper()}{line[1:]}"


def count(number: int, noun: str) -> str:
    """`"1 device"`, `"8 devices"`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
