"""Verdicts in rows, the fallback's warning, and the errors of a choice.

As people read them first: no patterns of device nodes, no PCI ids, nothing twice. The rest
stands in the verdicts themselves: `accel why NAME` and `accel list --all` show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accel_core.backend import Provenance
from accel_core.explain.reasons import OTHER_KINDS, explained, how_to_declare
from accel_core.hardware import vendors
from accel_core.hardware.bus import none_found
from accel_core.packages import normalize_distribution
from accel_core.plugins import declarers, installed_names
from accel_core.settings import Pin, Settings
from accel_core.text import did_you_mean, one_line
from accel_core.torch_import import torch_build
from accel_core.verdict import Reason, Status, Verdict, Why

# --- Verdicts in rows -------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A verdict as people read it, and the reason of all verdicts that it stands for."""

    verdict: Verdict
    reason: str

    def line(self, rows: Iterable[Row]) -> str:
        """Return it as a line of a text that has the other `rows` too."""
        return self.verdict.line([row.verdict for row in rows], self.reason)


#: From how many on backends that only lack a package share one line.
_MANY = 3


def folded(
    verdicts: Iterable[Verdict], *, in_full: bool = False
) -> tuple[list[Row], list[Verdict]]:
    """Return the verdicts that get a row of their own, and those that share one line.

    Backends of which only a package is missing share the line, unless they are so few that
    each can have its next step. A cause is written in full only where it first occurs: a
    broken torch breaks all backends. The text is plain, or complete with `in_full`.
    """
    every = list(verdicts)
    shared = _sharing_a_line(every)
    rows: list[Row] = []
    first_with_cause: dict[str, str] = {}
    for group in _groups(every):
        first = group[0]
        if first in shared:
            continue
        reason = _reason_of(group, in_full)
        namesake = first_with_cause.setdefault(first.cause, first.name)
        if first.cause and namesake != first.name:
            same = f", for the same reason as {namesake}"
            reason = reason.replace(f": {first.cause}", same)
        rows.append(Row(first, reason))
    shown = {_key(row.verdict) for row in rows}
    return rows, [verdict for verdict in shared if _key(verdict) not in shown]


def _sharing_a_line(verdicts: Sequence[Verdict]) -> list[Verdict]:
    uninstalled = [v for v in verdicts if _is_uninstalled(v)]
    if len({v.name for v in uninstalled}) >= _MANY:
        return uninstalled
    if torch_build() is not None:
        return []
    # What needs only torch has one next step, which is given for torch itself.
    return [v for v in uninstalled if v.vendor_import == ("torch",)]


def _reason_of(group: Sequence[Verdict], in_full: bool) -> str:
    if in_full:
        return _joined(verdict.reason for verdict in group)
    if _is_absent(group[0]):
        return none_found(verdict.hardware for verdict in group)
    return _joined(explained(verdict, plain=True).text for verdict in group)


def _groups(verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
    """Return the verdicts in groups that are shown as one.

    CUDA and ROCm are two declarations of one `cuda`: verdicts on one distribution with one
    status and one next step are one group.
    """
    groups: dict[object, list[Verdict]] = {}
    for verdict in relevant(verdicts):
        step = "" if _is_absent(verdict) else verdict.hint
        groups.setdefault((_key(verdict), verdict.status, step), []).append(verdict)
    return list(groups.values())


def relevant(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts without those that a namesake makes irrelevant.

    An owner of an NVIDIA GPU need not read that there is no AMD GPU, nor that torch is a
    CUDA build without ROCm.
    """
    kept = []
    for verdict in verdicts:
        namesakes = [other for other in verdicts if _key(other) == _key(verdict)]
        if not _is_irrelevant(verdict, namesakes):
            kept.append(verdict)
    return kept


def _is_irrelevant(verdict: Verdict, namesakes: Sequence[Verdict]) -> bool:
    if _lacks_its_build(verdict) and _is_for_other_hardware(verdict, namesakes):
        return True
    if not _is_missing(verdict):
        return False
    return not all(_is_missing(v) or _is_uninstalled(v) for v in namesakes)


def _is_for_other_hardware(verdict: Verdict, namesakes: Sequence[Verdict]) -> bool:
    """Whether torch is built for a namesake's hardware, which may be here."""
    others = [v for v in namesakes if v.hardware != verdict.hardware]
    evidence = {v.evidence for v in others}
    if verdict.evidence and verdict.evidence not in evidence:
        return False
    return any(not v.absent and not _lacks_its_build(v) for v in others)


def _joined(reasons: Iterable[str]) -> str:
    """Return all reasons; what ends each of them alike is written once."""
    every = list(dict.fromkeys(reasons))
    parts = [each.rpartition("; and ") for each in every]
    endings = {ending for _, _, ending in parts}
    if len(every) == 1 or len(endings) > 1:
        return "; ".join(every)
    beginnings = [beginning for beginning, _, _ in parts]
    return "; ".join([*beginnings, f"and {endings.pop()}"])


def _key(verdict: Verdict) -> tuple[str, str]:
    return verdict.name, normalize_distribution(verdict.distribution)


def _is_uninstalled(verdict: Verdict) -> bool:
    """Whether only a package is missing, and no hardware asks for it."""
    return verdict.status is Status.NOT_INSTALLED and not verdict.seen


def _is_missing(verdict: Verdict) -> bool:
    """Whether only a device is missing."""
    if verdict.seen or verdict.also is not None:
        return False
    return verdict.status is Status.NO_DEVICE


def _lacks_its_build(verdict: Verdict) -> bool:
    """Whether torch is built for other devices: nobody counted these."""
    if verdict.status is not Status.NO_DEVICE or verdict.absent:
        return False
    return verdict.devices is None


def _is_absent(verdict: Verdict) -> bool:
    return verdict.absent and _is_missing(verdict)


def is_merely_absent(verdict: Verdict) -> bool:
    """Whether there is nothing to repair: its device or its package is not here."""
    if verdict.needs_attention:
        return False
    return _is_absent(verdict) or _is_uninstalled(verdict)


def uninstalled(verdicts: Iterable[Verdict]) -> str:
    """Return one clause for the backends that lack only a package; empty for none."""
    lacking: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        what = "vendor's package not installed"
        if verdict.vendor_import == ("torch",):
            what = "need torch"
        lacking.setdefault(what, {})[one_line(verdict.name)] = None
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in lacking.items())


# --- The fallback -----------------------------------------------------------------------


def fallback(
    verdicts: Iterable[Verdict], missing: Sequence[str], *, in_full: bool
) -> str:
    """Return why the CPU is used although something else is installed or present.

    This is one line, unless `in_full` is set, hardware is present, or something that is
    installed is broken.
    """
    reported = [v for v in verdicts if v.is_reported]
    if in_full or missing or any(v.needs_attention for v in reported):
        return (
            "No accelerator is usable, so the CPU is used:\n"
            f"{reasons(reported, missing)}\n"
            "Run `accel why` for the whole record, or set DS_ACCELERATOR=cpu if the CPU "
            "is what you want."
        )
    return (
        f"No accelerator is usable, so the CPU is used: {_in_one_line(reported)}. "
        "`accel why` says more; DS_ACCELERATOR=cpu says that the CPU is meant."
    )


def _in_one_line(reported: Sequence[Verdict]) -> str:
    """Return the reasons that are not only an absence, and all absences at once."""
    texts = _labelled_reasons(reported)
    absent, not_installed = [], []
    for verdict in reported:
        if verdict.absent and verdict.status is Status.NO_DEVICE:
            absent.append(verdict.hardware)
        if _is_uninstalled(verdict):
            not_installed.append(verdict)
    if absent:
        texts.append(none_found(absent))
    if texts:
        return "; ".join(texts)
    return uninstalled(not_installed)


def _labelled_reasons(reported: Sequence[Verdict]) -> list[str]:
    """Return the reasons that are not only an absence, each after its backend's label."""
    rows = [row for row in folded(reported)[0] if not is_merely_absent(row.verdict)]
    shown = [row.verdict for row in rows]
    return [f"{row.verdict.label(shown)}: {row.reason}" for row in rows]


def reasons(verdicts: Iterable[Verdict], missing: Iterable[str]) -> str:
    """Return why each installed or present accelerator is not used, present ones first.

    One line each.
    """
    reported = [v for v in verdicts if v.is_reported]
    reported.sort(key=lambda v: (not v.seen, not v.needs_attention))
    rows, others = folded(reported, in_full=True)
    lines = [*missing, *(row.line(rows) for row in rows)]
    if others:
        lines.append(uninstalled(others))
    return _indented(lines)


# --- Errors -----------------------------------------------------------------------------


def unknown(pin: Pin) -> Verdict:
    """Return the verdict on a pinned name that nobody declares."""
    why = Why(Reason.NOT_DECLARED, {"distribution": pin.distribution})
    source = Provenance(pin.distribution, "")
    return Verdict(pin.name, source, status=Status.NOT_INSTALLED, why=why)


def other_pins(asked: str, cpu: bool) -> str:
    """Return the advice on another pin: the CPU, if that is usable.

    Which accelerators are usable is not tried for a message. A command or a call that
    names its own backend heeds no variable.
    """
    if cpu and asked.startswith("DS_ACCELERATOR="):
        return "Or set DS_ACCELERATOR=cpu; `accel list` shows the usable backends."
    return "`accel list` shows the usable backends."


def not_found(asked: str, pin: Pin, *, cpu: bool = True) -> str:
    """Return the message for a pin that names nothing that is installed.

    `cpu`: whether the CPU can be pinned instead.
    """
    names = installed_names()
    if pin.name in names and not pin.distribution:
        plugin = f"the plugin of entry point {pin.name}"
        return f"{asked}: {plugin} declares another name: `accel list` shows it."
    message = f"{asked}: {unknown(pin).reason}. Installed: {', '.join(names)}."
    return f"{message} {_advice(asked, pin, names, cpu)}"


def _advice(asked: str, pin: Pin, names: Sequence[str], cpu: bool) -> str:
    """Return what to write instead of a name that nobody declares."""
    if pin.name in ("gpu", "gpus"):
        return _instead_of_gpu(asked, names, cpu)
    owners = sorted(declarers(pin.name)) if pin.distribution else []
    if owners:
        return f"{pin.name} is declared by {', '.join(owners)}."
    # A name that is known is no slip of the finger: its plugin is missing.
    is_known = pin.name in vendors.FIRST_PARTY or pin.name in OTHER_KINDS
    guess = "" if is_known or pin.distribution else did_you_mean(pin.name, names)
    return guess.strip() or _next_step(how_to_declare(pin))


def _instead_of_gpu(asked: str, names: Sequence[str], cpu: bool) -> str:
    gpus = {v.backend for v in vendors.VENDORS if v.label.endswith("GPU")}
    installed = [name for name in names if name in gpus]
    if not installed:
        return f"No backend for a GPU is installed. {other_pins(asked, cpu)}"
    which = ", ".join(installed)
    return f"For a GPU name one of {which}: `accel list` shows which are usable."


def conflict(asked: str, pin: Pin, claimants: Sequence[Verdict]) -> str:
    """Return the message for a pinned name that several distributions declare."""
    sources = " and ".join(str(v.provenance) for v in claimants)
    pins = " or ".join(f"{pin.name}@{v.distribution}" for v in claimants)
    return f"{asked}: {sources} declare {pin.name}. Say which one is meant: {pins}."


def pin_not_honoured(
    settings: Settings, verdicts: Sequence[Verdict], *, cpu: bool
) -> str:
    """Return the message for pins of which none is usable."""
    instead = other_pins(settings.asked, cpu)
    rows = [
        Row(group[0], _joined(verdict.reason for verdict in group))
        for group in _groups(verdicts)
    ]
    if len(rows) > 1:
        lines = _indented(row.line(rows) for row in rows)
        return f"{settings.asked}: none of these is usable.\n{lines}\n{instead}"
    verdict = rows[0].verdict
    is_late = verdict.status is Status.TIMED_OUT
    what = "gave no answer in time" if is_late else "is not usable"
    refusal = f"{verdict.name} ({verdict.provenance}) {what}: {rows[0].reason}."
    return " ".join(filter(None, [refusal, _next_step(verdict.hint), instead]))


def unknown_choice(undecided: Sequence[Verdict]) -> str:
    """Return the message for a choice that a command cannot know.

    Backends come before it that end a program, or did not answer in time.
    """
    fatal = {v.name: str(v.provenance) for v in undecided if v.fatal}
    if fatal:
        who = " and ".join(f"{name} ({source})" for name, source in fatal.items())
        step = _next_step(f"set ACCEL_PROBE=isolated, or ACCEL_BLOCK={','.join(fatal)}")
        return f"{who} would end a program before it has an accelerator. {step}"
    who = "; ".join(f"{v.name} ({v.provenance}) gave {v.reason}" for v in undecided)
    step = _next_step(undecided[0].hint)
    return f"Which backend would be chosen is not known: {who}. {step}"


def nothing_usable(verdicts: Sequence[Verdict]) -> str:
    """Return the message for a choice by rank in which not even the CPU is usable."""
    cpu = next((v for v in verdicts if v.name == "cpu"), None)
    if cpu is not None and cpu.status is Status.NOT_INSTALLED:
        setup = vendors.command_with_its_package("accel setup")
        problem = f"torch is not installed: {setup}."
    elif cpu is not None and cpu.status.is_failure:
        problem = " ".join(filter(None, [f"{cpu.reason}.", _next_step(cpu.hint)]))
        # The reason of what is built in is torch's too.
        verdicts = [v for v in verdicts if not v.builtin]
    else:
        problem = "The settings rule out what is usable."
    lines = _indented(verdict.line(verdicts) for verdict in verdicts)
    return f"{problem}\n{lines}".rstrip()


def refused_cpu(
    settings: Settings, verdicts: Iterable[Verdict], missing: Iterable[str]
) -> str:
    """Return the message for a strict choice that comes to the CPU."""
    why = reasons(verdicts, missing) or "  no plugin of an accelerator is installed"
    return (
        f"ACCEL_STRICT={settings.strict} refuses the CPU, and no accelerator is usable:\n"
        f"{why}\n"
        "Fix one of these, or set DS_ACCELERATOR=cpu if the CPU is what you want."
    )


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def _next_step(hint: str) -> str:
    """Return a hint as a sentence; as it stands, for it may be a command."""
    return f"Next step: {hint.rstrip('.')}." if hint else ""
