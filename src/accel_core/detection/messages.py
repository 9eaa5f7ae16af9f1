"""Errors in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from accel_core.detection import plain
from accel_core.detection.discovery import declarers, installed_names
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded, Verdict
from accel_core.machine import vendors
from accel_core.settings import Pin, Settings

__all__ = [
    "conflict",
    "not_found",
    "nothing_usable",
    "pin_not_honoured",
    "refused_cpu",
    "unknown",
]


def unknown(pin: Pin) -> Outcome:
    """The outcome for a pinned name that nobody declares."""
    wanted = f"{pin.name} from {pin.distribution}" if pin.distribution else pin.name
    return Outcome(Status.NOT_INSTALLED, f"no installed distribution declares {wanted}", _install(pin))


#: Other people's names for kinds of device, near to which no name of ours means anything.
_OTHER_KINDS = ("tpu", "ipu", "musa", "gcu", "vpu", "vulkan", "xla")


def not_found(asked: str, pin: Pin, usable: Callable[[], Sequence[str]]) -> str:
    """The message for a pin that names nothing that is installed; `usable` gives names that work here."""
    names = installed_names()
    message = f"{asked}: {unknown(pin).reason}. Installed: {', '.join(names)}."
    if pin.name in ("gpu", "gpus"):
        gpus = {vendor.backend for vendor in vendors.VENDORS if vendor.label.endswith("GPU")}
        ours = [name for name in usable() if name in gpus]
        if ours:
            return f"{message} For a GPU name one of {', '.join(ours)}."
        return f"{message} No backend for a GPU is usable here: `accel why` says why. {_instead(usable())}"
    if pin.distribution:
        owners = sorted(declarers(pin.name))
        if owners:
            return f"{message} {pin.name} is declared by {', '.join(owners)}."
    # A name that we know is no slip of the finger: its plugin is missing.
    elif pin.name not in (*vendors.FIRST_PARTY, *_OTHER_KINDS) and (close := _close(pin.name, names)):
        message += f" Did you mean {close[0]!r}?"
    return f"{message} {_next(_install(pin))}"


def _close(name: str, names: list[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(name, names, n=1)


def _install(pin: Pin) -> str:
    distribution = vendors.FIRST_PARTY.get(pin.name, "")
    return (
        f"pip install {distribution}"
        if distribution and pin.distribution in ("", distribution)
        else "install the plugin that brings it, see `accel list`"
    )


def conflict(asked: str, pin: Pin, claimants: Sequence[Candidate | Unloaded]) -> str:
    """The message for a pinned name that several distributions declare."""
    ways = [f"{pin.name}@{c.distribution}" for c in claimants]
    return (
        f"{asked}: {' and '.join(str(c.provenance) for c in claimants)} declare {pin.name}. "
        f"Say which one is meant: {' or '.join(ways)}."
    )


def pin_not_honoured(settings: Settings, verdicts: Sequence[Verdict], others: Sequence[str]) -> str:
    """The message for pins of which none is usable: reasons, next step, and the `others` to pin instead."""
    instead = _instead(others)
    verdicts = plain.merged(verdicts)
    if len(verdicts) == 1:
        v = verdicts[0]
        refusal = f"{v.name} ({v.provenance}) is not usable: {v.reason}."
        return " ".join(filter(None, [refusal, _next(v.hint), instead]))
    return f"{settings.asked}: none of these is usable.\n{_lines(verdicts)}\n{instead}"


def _instead(others: Sequence[str]) -> str:
    if len(others) == 1:
        return f"Or set DS_ACCELERATOR={others[0]}."
    return f"Or set DS_ACCELERATOR to one of: {', '.join(others)}." if others else ""


def nothing_usable(verdicts: Sequence[Verdict]) -> str:
    """The message for a ranked choice in which not even the CPU can be had."""
    return f"No usable accelerator, and the CPU cannot be chosen either.\n{_lines(verdicts)}"


def refused_cpu(settings: Settings, verdicts: Iterable[Verdict], missing: Iterable[str]) -> str:
    """The message for a strict choice that comes to the CPU."""
    reasons = plain.reasons(verdicts, missing) or "  no plugin of an accelerator is installed"
    return (
        f"ACCEL_STRICT={settings.strict} refuses the CPU, and no accelerator is usable:\n{reasons}\n"
        "Mend one of these, or set DS_ACCELERATOR=cpu if the CPU is what you want."
    )


def _lines(verdicts: Iterable[Verdict]) -> str:
    return "\n".join(f"  {v}" for v in verdicts)


def _next(hint: str) -> str:
    """A hint as the next step; as it stands, for it may be a command."""
    return f"Next step: {hint.rstrip('.')}." if hint else ""
