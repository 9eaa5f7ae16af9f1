"""Verdicts and errors in words.

As people read them first: no patterns of device nodes, no PCI ids, nothing twice. The rest stands in the
verdicts themselves: `accel why NAME` and `accel list --all` show it.
"""

from collections.abc import Iterable, Sequence

from accel_core.backend import Provenance
from accel_core.detection import Judged, Outcome, Status, Unloaded, Verdict
from accel_core.detection.discovery import declarers, installed_names
from accel_core.hardware import vendors
from accel_core.hardware.bus import none_found
from accel_core.packages import normalize_distribution
from accel_core.settings import Pin, Settings
from accel_core.text import did_you_mean, one_line
from accel_core.torch_import import torch_build

# --- Verdicts ------------------------------------------------------------------------------------------

#: From how many on backends that only lack a package share one line.
_MANY = 3


def _is_uninstalled(verdict: Verdict) -> bool:
    """Whether all that can be said is that a package is not installed: no hardware asks for it."""
    return verdict.status is Status.NOT_INSTALLED and not verdict.evidence


def _is_missing(verdict: Verdict) -> bool:
    """Whether all that can be said is that a device is missing."""
    return verdict.status is Status.NO_DEVICE and not verdict.evidence and not verdict.broken


def _lacks_its_build(verdict: Verdict) -> bool:
    """Whether torch is built for other devices: nobody counted these, which may be here."""
    return verdict.status is Status.NO_DEVICE and verdict.devices is None and not verdict.absent


def _is_absent(verdict: Verdict) -> bool:
    return verdict.absent and _is_missing(verdict)


def merely_absent(verdict: Verdict) -> bool:
    """Whether there is nothing to mend, for its device is not here or its package is not installed."""
    return (_is_absent(verdict) or _is_uninstalled(verdict)) and not verdict.needs_mending


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


def folded(verdicts: Iterable[Verdict], *, in_full: bool = False) -> tuple[list[Verdict], list[Verdict]]:
    """Return the verdicts that get a row of their own, and those that share one line.

    Backends of which only a package is missing share the line, unless they are so few that each can have its
    next step. A cause is written in full only where it first occurs: a broken torch breaks all backends. The
    text is plain, or complete with `in_full`.
    """
    every = list(verdicts)
    uninstalled = [v for v in every if _is_uninstalled(v)]
    shared = uninstalled
    if len({v.name for v in uninstalled}) < _MANY:
        # Without torch what needs nothing else has one next step, which is said of torch itself.
        shared = [v for v in uninstalled if v.vendor_import == ("torch",)] if torch_build() is None else []
    rows: list[Verdict] = []
    told = {"": ""}
    for first, *others in _declarations(every):
        if first in shared:
            continue
        group = [first, *others]
        if in_full or not _is_absent(first):
            why = _joined(v.reason if in_full else reason(v) for v in group)
        else:
            why = none_found(v.hardware for v in group)
        if same := told.get(first.cause):
            why = why.replace(f": {first.cause}", f", for the same reason as {same}")
        told.setdefault(first.cause, first.name)
        rows.append(first._replace(reason=why))
    known = {_key(v) for v in rows}
    return rows, [v for v in shared if _key(v) not in known]


def _declarations(verdicts: Sequence[Verdict]) -> Iterable[list[Verdict]]:
    """The verdicts in groups that are told as one: CUDA and ROCm are two declarations of one `cuda`.

    Those of one distribution with one status and one next step are one group.
    """
    groups: dict[object, list[Verdict]] = {}
    for v in relevant(verdicts):
        groups.setdefault((_key(v), v.status, "" if _is_absent(v) else v.hint), []).append(v)
    return groups.values()


def relevant(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts without those that another declaration of the same backend makes irrelevant.

    An owner of an NVIDIA GPU need not read that there is no AMD GPU, nor that torch is a CUDA build without
    ROCm.
    """
    return [v for v in verdicts if not _is_irrelevant(v, [w for w in verdicts if _key(w) == _key(v)])]


def _is_irrelevant(verdict: Verdict, alike: Sequence[Verdict]) -> bool:
    if _lacks_its_build(verdict):
        others = [w for w in alike if w.hardware != verdict.hardware]
        has_own_evidence = verdict.evidence and all(w.evidence != verdict.evidence for w in others)
        if not has_own_evidence and any(not w.absent and not _lacks_its_build(w) for w in others):
            return True  # torch is built for another's hardware, which may be here
    return _is_missing(verdict) and not all(_is_missing(w) or _is_uninstalled(w) for w in alike)


def _joined(reasons: Iterable[str]) -> str:
    """All reasons; what stands behind each alike is said once."""
    every = list(dict.fromkeys(reasons))
    parts = [each.rpartition("; and ") for each in every]
    common = {last for _, _, last in parts}
    if len(every) == 1 or len(common) > 1:
        return "; ".join(every)
    return "; ".join([*(first for first, _, _ in parts), f"and {common.pop()}"])


def _key(verdict: Verdict) -> tuple[str, str]:
    return verdict.name, normalize_distribution(verdict.provenance.distribution)


def fallback(verdicts: Iterable[Verdict], missing: Sequence[str], *, in_full: bool) -> str:
    """Return why the CPU is used although something else is installed or present.

    This is one line, unless `in_full` is set, the hardware is present, or something installed is broken.
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
    rows = [v for v in folded(news)[0] if not merely_absent(v)]
    told = [f"{v.label(rows)}: {v.reason}" for v in rows]
    if absent := [v.hardware for v in news if v.absent and v.status is Status.NO_DEVICE]:
        told.append(none_found(absent))
    return "; ".join(told) or uninstalled(v for v in news if _is_uninstalled(v))


def reasons(verdicts: Iterable[Verdict], missing: Iterable[str]) -> str:
    """Return why each installed or present accelerator is not used, one line each, present ones first."""
    news = sorted((v for v in verdicts if v.is_news), key=lambda v: (not v.evidence, not v.needs_mending))
    rows, others = folded(news, in_full=True)
    return _lines(filter(None, [*missing, *(v.line(rows) for v in rows), uninstalled(others)]))


def uninstalled(verdicts: Iterable[Verdict]) -> str:
    """Return one clause for the backends that lack only a package; empty if there are none."""
    lacking: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        what = "need torch" if verdict.vendor_import == ("torch",) else "vendor's package not installed"
        lacking.setdefault(what, {})[one_line(verdict.name)] = None
    return "; ".join(f"{what}: {', '.join(names)}" for what, names in lacking.items())


# --- Errors --------------------------------------------------------------------------------------------


def unknown(pin: Pin) -> Unloaded:
    """The stand-in for a pinned name that nobody declares."""
    wanted = f"{pin.name} from {pin.distribution}" if pin.distribution else pin.name
    absent = Outcome(Status.NOT_INSTALLED, f"no installed distribution declares {wanted}", _install(pin))
    return Unloaded(pin.name, Provenance(pin.distribution, ""), absent)


#: Other people's names for kinds of device, near to which no name of ours means anything.
_OTHER_KINDS = ("tpu", "ipu", "gcu", "vpu", "vulkan", "xla")


def other_pins(asked: str, cpu: bool) -> str:
    """Return the advice on another pin: the CPU, if that is usable.

    Which accelerators are usable is not tried for a message. A command or a call that names its own backend
    heeds no variable.
    """
    if cpu and asked.startswith("DS_ACCELERATOR="):
        return "Or set DS_ACCELERATOR=cpu; `accel list` shows the usable backends."
    return "`accel list` shows the usable backends."


def not_found(asked: str, pin: Pin, *, cpu: bool = True) -> str:
    """The message for a pin that names nothing that is installed; `cpu`: whether that can be pinned."""
    names = installed_names()
    message = f"{asked}: {unknown(pin).outcome.reason}. Installed: {', '.join(names)}."
    if pin.name in names and not pin.distribution:
        return f"{asked}: the plugin of entry point {pin.name} declares another name: `accel list` shows it."
    if pin.name in ("gpu", "gpus"):
        gpus = {vendor.backend for vendor in vendors.VENDORS if vendor.label.endswith("GPU")}
        installed = ", ".join(name for name in names if name in gpus)
        if installed:
            return f"{message} For a GPU name one of {installed}: `accel list` shows which are usable."
        return f"{message} No backend for a GPU is installed. {other_pins(asked, cpu)}"
    if pin.distribution:
        if owners := sorted(declarers(pin.name)):
            return f"{message} {pin.name} is declared by {', '.join(owners)}."
    # A name that we know is no slip of the finger: its plugin is missing.
    elif pin.name not in (*vendors.FIRST_PARTY, *_OTHER_KINDS) and (meant := did_you_mean(pin.name, names)):
        return f"{message}{meant}"
    return f"{message} {_next(_install(pin))}"


def _install(pin: Pin) -> str:
    distribution = vendors.FIRST_PARTY.get(pin.name, "")
    if distribution and pin.distribution in ("", distribution):
        return vendors.install_command(distribution)
    if pin.name in _OTHER_KINDS:
        return f"install a plugin for {pin.name}, or write one: accel new --help"
    return "correct the name"


def conflict(asked: str, pin: Pin, claimants: Sequence[Judged]) -> str:
    """The message for a pinned name that several distributions declare."""
    ways = [f"{pin.name}@{c.distribution}" for c in claimants]
    return (
        f"{asked}: {' and '.join(str(c.provenance) for c in claimants)} declare {pin.name}. "
        f"Say which one is meant: {' or '.join(ways)}."
    )


def pin_not_honoured(settings: Settings, verdicts: Sequence[Verdict], *, cpu: bool) -> str:
    """The message for pins of which none is usable: reasons, next step, and what to pin instead."""
    instead = other_pins(settings.asked, cpu)
    every = [g[0]._replace(reason=_joined(v.reason for v in g)) for g in _declarations(verdicts)]
    if len(every) == 1:
        v = every[0]
        what = "gave no answer in time" if v.status is Status.TIMED_OUT else "is not usable"
        refusal = f"{v.name} ({v.provenance}) {what}: {v.reason}."
        return " ".join(filter(None, [refusal, _next(v.hint), instead]))
    lines = _lines(v.line(every) for v in every)
    return f"{settings.asked}: none of these is usable.\n{lines}\n{instead}"


def not_known(unsure: Sequence[Verdict]) -> str:
    """The message for a choice before which backends come that end a program, or gave no answer in time."""
    if fatal := {v.name: str(v.provenance) for v in unsure if v.fatal}:
        who = " and ".join(f"{name} ({source})" for name, source in fatal.items())
        step = _next(f"set ACCEL_PROBE=isolated, or ACCEL_BLOCK={','.join(fatal)}")
        return f"{who} would end a program before it has an accelerator. {step}"
    who = "; ".join(f"{v.name} ({v.provenance}) gave {v.reason}" for v in unsure)
    return f"Which backend would be chosen is not known: {who}. {_next(unsure[0].hint)}"


def nothing_usable(verdicts: Sequence[Verdict]) -> str:
    """The message for a choice by priority in which not even the CPU is usable."""
    cpu = next((v for v in verdicts if v.name == "cpu"), None)
    if cpu is not None and cpu.status is Status.NOT_INSTALLED:
        why = f"torch is not installed: {vendors.command_with_its_package('accel setup')}."
    elif cpu is not None and cpu.status.is_failure:
        why = " ".join(filter(None, [f"{cpu.reason}.", _next(cpu.hint)]))
        verdicts = [v for v in verdicts if not v.builtin]  # whose reason is torch's too
    else:
        why = "The settings rule out what is usable."
    lines = _lines(v.line(verdicts) for v in verdicts)
    return f"{why}\n{lines}".rstrip()


def refused_cpu(settings: Settings, verdicts: Iterable[Verdict], missing: Iterable[str]) -> str:
    """The message for a strict choice that comes to the CPU."""
    why = reasons(verdicts, missing) or "  no plugin of an accelerator is installed"
    return (
        f"ACCEL_STRICT={settings.strict} refuses the CPU, and no accelerator is usable:\n{why}\n"
        "Fix one of these, or set DS_ACCELERATOR=cpu if the CPU is what you want."
    )


def _lines(items: Iterable[object]) -> str:
    return "\n".join(f"  {item}" for item in items)


def _next(hint: str) -> str:
    """A hint as the next step; as it stands, for it may be a command."""
    return f"Next step: {hint.rstrip('.')}." if hint else ""
