"""Verdicts and errors in words.

As people read them first: no patterns of device nodes, no PCI ids, nothing twice. The rest stands in the
verdicts themselves: `accel why NAME` and `accel list --all` show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from accel_core.detection import Candidate, Outcome, Status, Unloaded, Verdict
from accel_core.detection.discovery import declarers, installed_names
from accel_core.machine import vendors
from accel_core.settings import Pin, Settings

# --- Verdicts ------------------------------------------------------------------------------------------

#: From how many on backends that only lack a package share one line.
MANY = 3


def is_uninstalled(verdict: Verdict) -> bool:
    """Whether all that can be said is that a package is not installed: no hardware asks for it."""
    return verdict.status is Status.NOT_INSTALLED and not verdict.evidence


def merely_absent(verdict: Verdict) -> bool:
    """Whether there is nothing to mend, for its device is not here or its package is not installed."""
    absent = verdict.absent and verdict.status is Status.NO_DEVICE
    return (absent or is_uninstalled(verdict)) and not verdict.needs_mending


def none_found(hardware: Iterable[str]) -> str:
    """`"no NVIDIA or AMD GPU found"`; names that end in one word share it."""
    makers: dict[str, list[str]] = {}
    for name in dict.fromkeys(filter(None, hardware)):
        maker, _, kind = name.rpartition(" ")
        makers.setdefault(kind, []).append(maker)
    kinds = [f"no {_enumerated(names)} {kind}".replace("  ", " ") for kind, names in makers.items()]
    return f"{', '.join(kinds) or 'no device'} found"


def _enumerated(names: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def reason(verdict: Verdict) -> str:
    """Why, as one clause; empty for most of what is usable."""
    if verdict.absent and verdict.status is Status.NO_DEVICE:
        _, besides, trouble = verdict.reason.partition("; besides, ")
        return f"{none_found([verdict.hardware])}{besides}{trouble}"
    text = verdict.reason
    if verdict.evidence:
        for mention in (f" ({verdict.evidence})", f": {verdict.evidence}", f"; {verdict.evidence}"):
            text = text.replace(mention, "")
    return text.replace("[0-9]*", "0")  # a pattern as one of the nodes that it means


def fallback(verdicts: Iterable[Verdict], missing: Sequence[str], *, in_full: bool) -> str:
    """Why the CPU is used, where something else is installed or present.

    One line, unless `in_full` is asked for, or there is something to mend: hardware that is here, or what is
    installed and broken.
    """
    news = [v for v in verdicts if v.is_news]
    if in_full or missing or any(v.needs_mending for v in news):
        return (
            f"No accelerator is usable, so the CPU is used:\n{reasons(news, missing)}\n"
            "Run `accel why` for the whole record, or set DS_ACCELERATOR=cpu if the CPU is what you want."
        )
    return (
        f"No accelerator is usable, so the CPU is used: {_in_one_line(news)}. `accel why` says more; "
        "DS_ACCELERATOR=cpu says that the CPU is meant."
    )


def _in_one_line(news: Sequence[Verdict]) -> str:
    """Reasons that are not only an absence, and the absences at once."""
    told = [f"{v.name}: {reason(v)}" for v in merged(news) if not merely_absent(v)]
    absent = [v.hardware for v in news if v.absent and v.status is Status.NO_DEVICE]
    if absent:
        told.append(none_found(absent))
    uninstalled = dict.fromkeys(v.name for v in news if is_uninstalled(v))
    if uninstalled and not told:
        told.append(f"vendor's package not installed: {', '.join(uninstalled)}")
    return "; ".join(told)


def reasons(verdicts: Iterable[Verdict], missing: Iterable[str]) -> str:
    """Why each accelerator that is installed or present is not used, a line each; what is here first."""
    news = sorted((v for v in verdicts if v.is_news), key=lambda v: (not v.evidence, not v.needs_mending))
    return "\n".join(f"  {line}" for line in [*missing, *_grouped(news)])


def _grouped(verdicts: Sequence[Verdict]) -> list[str]:
    """A line a verdict; many that only lack the vendor's package, and show no hardware, share one."""
    missing = [v for v in verdicts if v.status is Status.NOT_INSTALLED and not v.evidence]
    if len(missing) < MANY:
        return list(map(str, merged(verdicts)))
    lines = map(str, merged([v for v in verdicts if v not in missing]))
    names = ", ".join(dict.fromkeys(v.name for v in missing))
    return [*lines, f"vendor's package not installed: {names}"]


def merged(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts with those on several declarations of one backend merged: CUDA and ROCm are both `cuda`.

    That the device of one is missing is no news beside the device, or the failure, of another. What has one
    status and one next step is one verdict, with the reasons of all.
    """
    kept: dict[object, Verdict] = {}
    for v in verdicts:
        missing = v.status is Status.NO_DEVICE and not v.evidence
        if missing and any(_is_other_way(w, v) and (w.evidence or w.status.is_failure) for w in verdicts):
            continue
        same = kept.get(key := (v.name, v.provenance, v.status, v.hint))
        if same is None:
            kept[key] = v
        elif v.reason not in same.reason.split("; "):
            kept[key] = same._replace(reason=_joined(same.reason, v.reason))
    return list(kept.values())


def _joined(reason: str, other: str) -> str:
    """Both reasons; what stands in both ways alike is said once, behind."""
    (first, _, common), (second, _, also) = reason.rpartition("; and "), other.rpartition("; and ")
    return f"{first}; {second}; and {common}" if first and common == also else f"{reason}; {other}"


def _is_other_way(verdict: Verdict, other: Verdict) -> bool:
    """Whether both are one distribution's declarations of one backend, through the same package."""
    return verdict is not other and (
        (verdict.name, verdict.provenance, verdict.vendor_import)
        == (other.name, other.provenance, other.vendor_import)
    )


# --- Errors --------------------------------------------------------------------------------------------


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
        return f"{message} Did you mean {close[0]!r}?"
    return f"{message} {_next(_install(pin))}"


def _close(name: str, names: list[str]) -> list[str]:
    import difflib

    return difflib.get_close_matches(name, names, n=1)


def _install(pin: Pin) -> str:
    distribution = vendors.FIRST_PARTY.get(pin.name, "")
    return (
        vendors.sourced(f"pip install {distribution}")
        if distribution and pin.distribution in ("", distribution)
        else "correct the name, or install the plugin that brings it"
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
    verdicts = merged(verdicts)
    if len(verdicts) == 1:
        v = verdicts[0]
        what = "gave no answer in time" if v.status is Status.TIMED_OUT else "is not usable"
        refusal = f"{v.name} ({v.provenance}) {what}: {v.reason}."
        return " ".join(filter(None, [refusal, _next(v.hint), instead]))
    return f"{settings.asked}: none of these is usable.\n{_lines(verdicts)}\n{instead}"


def _instead(others: Sequence[str]) -> str:
    if len(others) == 1:
        return f"Or set DS_ACCELERATOR={others[0]}."
    return f"Or set DS_ACCELERATOR to one of: {', '.join(others)}." if others else ""


def not_known(late: Sequence[Verdict]) -> str:
    """The message for a choice before which backends come that gave no answer in time."""
    who = "; ".join(f"{v.name} ({v.provenance}) gave {v.reason}" for v in late)
    return f"Which backend would be chosen is not known: {who}. {_next(late[0].hint)}"


def nothing_usable(verdicts: Sequence[Verdict]) -> str:
    """The message for a ranked choice in which not even the CPU can be had."""
    lacking = any(v.name == "cpu" and v.status is Status.NOT_INSTALLED for v in verdicts)
    why = "torch is not installed: pip install torch" if lacking else "The settings rule out what is usable"
    return f"{why}.\n{_lines(verdicts)}"


def refused_cpu(settings: Settings, verdicts: Iterable[Verdict], missing: Iterable[str]) -> str:
    """The message for a strict choice that comes to the CPU."""
    why = reasons(verdicts, missing) or "  no plugin of an accelerator is installed"
    return (
        f"ACCEL_STRICT={settings.strict} refuses the CPU, and no accelerator is usable:\n{why}\n"
        "Fix one of these, or set DS_ACCELERATOR=cpu if the CPU is what you want."
    )


def _lines(verdicts: Iterable[Verdict]) -> str:
    return "\n".join(f"  {v}" for v in verdicts)


def _next(hint: str) -> str:
    """A hint as the next step; as it stands, for it may be a command."""
    return f"Next step: {hint.rstrip('.')}." if hint else ""
