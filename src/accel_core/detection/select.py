"""The three questions: which backends there are, which one is chosen, and what each comes to.

Nothing here looks at the machine: what there is comes from `find`, what it is worth from `judge`. Ranked
choice goes down the order and stops at the first usable backend, so that a judge who probes when he is asked
imports nothing below it. A pin looks at what it names and nothing else.
"""

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from accel_core import errors, hardware
from accel_core.backend import Backend
from accel_core.detection import (
    Candidate,
    Choice,
    Found,
    How,
    Judged,
    Outcome,
    Ranked,
    Selection,
    Status,
    Verdict,
)
from accel_core.detection.discovery import Load, find_candidates, load_plugin, needs_slot, slot_is_held
from accel_core.detection.probe import Prober, can_be_broken
from accel_core.hardware.vendors import missing_plugins
from accel_core.log import LOGGER
from accel_core.packages import normalize_distribution
from accel_core.settings import VARIABLES, Pin, Settings, read
from accel_core.text import did_you_mean
from accel_core.torch_import import FREE_SLOT

if TYPE_CHECKING:
    from accel_core.interface import Accelerator

#: The candidates that a pin means; `None` for all of them.
Find = Callable[[Pin | None], Ranked]


def discover(*, isolated: bool = False) -> Ranked:
    """Return every built-in or installed backend, in rank order; imports each plugin's module.

    A plugin that `ACCEL_ALLOW` or `ACCEL_BLOCK` excludes is not imported: it is returned unloaded, under its
    entry point's name. With `isolated`, or `ACCEL_PROBE=isolated`, a child process imports the modules; this
    process imports a plugin only when one of its hooks is called. Raises `SettingError` for an invalid
    setting.
    """
    settings = read()
    return Found(find_candidates(None, settings, loader(settings, isolated=isolated)))


def loader(settings: Settings, *, isolated: bool = False) -> Load:
    """Return the reader of declarations: in child processes if settings or the caller ask, else here."""
    if isolated or settings.isolated:
        from accel_core.detection.isolated import IsolatedLoader  # here, as most processes start no child

        return IsolatedLoader(settings.probe_timeout)
    return lambda plugins: list(map(load_plugin, plugins))


def select(
    settings: Settings,
    *,
    isolated: bool = False,
    find: Find | None = None,
    judge: Prober | None = None,
    built: Mapping[Backend, "Accelerator"] = MappingProxyType({}),
) -> Choice:
    """Choose as `settings` say; a choice that fails comes back with its error, and still with its record.

    Without `find` and `judge` it looks for itself; `isolated`: plugins and vendors in child processes only.
    Else the accelerator of the chosen backend is in the result: one of `built`, or built now.
    """
    start = time.perf_counter()
    if find is None:
        find = functools.partial(find_candidates, settings=settings, load=loader(settings, isolated=isolated))
    judge = judge or Prober(settings, isolated=isolated, built=built)
    choice = (_pinned if settings.pins else _ranked)(settings, find, judge)
    among = choice.selection.verdicts
    unsure = [v for v in among if v.status is Status.TIMED_OUT or (v.fatal and not settings.isolated)]
    # A program goes on without a backend that gave no answer in time, or waits for it: no command is to say
    # which. Nor what comes after a backend at which a program ends.
    if unsure and judge.isolated and len(settings.pins) != 1:
        from accel_core.detection import messages  # here, as nearly every choice is known

        unknown = errors.BackendUnavailableError(messages.not_known(unsure))
        choice = choice._replace(candidate=None, error=unknown)
    candidate, error = choice.candidate, choice.error
    selection = choice.selection._replace(
        chosen=candidate.name if candidate else None,
        provenance=candidate.provenance if candidate else None,
        pid=os.getpid(),
        environ=_environ(choice.considered),
        ms=(time.perf_counter() - start) * 1e3,
        problem=str(error) if error else "",
        notes=_notes(settings, choice),
    )
    LOGGER.info("choose %s, after %.1f ms", selection.chosen or "nothing", selection.ms)
    return choice._replace(selection=selection)


def _ranked(settings: Settings, find: Find, judge: Prober) -> Choice:
    candidates = find(None)
    clashes = _conflicts(candidates, settings)
    verdicts: list[Verdict] = []
    chosen: Candidate | None = None
    accelerator: Accelerator | None = None
    for candidate in candidates:
        if candidate in clashes:
            verdicts.append(Verdict.of(candidate, clashes[candidate]))
        elif chosen is not None:
            below = Outcome(Status.NOT_PROBED, f"it ranks below {chosen.name}")
            verdicts.append(judge.inspect(candidate, below))
        else:
            verdict = judge.probe(candidate, candidates)
            verdicts.append(_after(verdicts, verdict, candidate, candidates))
            if verdicts[-1].usable and isinstance(candidate, Candidate):
                chosen, accelerator = candidate, verdicts[-1].accelerator
    fallback = chosen is not None and chosen.builtin and chosen.name == "cpu"
    missing = missing_plugins(c.name for c in candidates) if fallback else ()
    spoiled = _spoiled(judge, chosen, verdicts)
    more = (*missing, *spoiled)
    error: errors.AccelError | None = None
    mending = more or any(v.needs_mending for v in verdicts)
    if chosen is None or (fallback and (settings.strict == "always" or (settings.strict and mending))):
        from accel_core.detection import messages  # here, as a choice that succeeds says nothing

        why = messages.refused_cpu(settings, verdicts, more) if chosen else messages.nothing_usable(verdicts)
        chosen, error = None, errors.BackendUnavailableError(why)
    how = How.FALLBACK if fallback else How.RANKED
    record = Selection(None, how, tuple(verdicts), missing_plugins=missing, autoload=spoiled)
    return Choice(record, chosen, candidates, error, accelerator)


def _after(
    earlier: Sequence[Verdict], verdict: Verdict, candidate: Judged, among: Sequence[Judged]
) -> Verdict:
    """The verdict in a program, which probes one backend after the other in one process.

    A command probes each in a process of its own. The packages that a program has imported keep torch's
    PrivateUse1 slot, though their device cannot be used.
    """
    if not verdict.slot or not isinstance(candidate, Candidate) or not needs_slot(candidate.backend):
        return verdict
    backend = candidate.backend
    free = ("", FREE_SLOT, backend.device_type)
    holder = next((v.slot for v in earlier if v.slot not in free), None)
    if holder is None:
        return verdict
    others = tuple(c.backend for c in among if isinstance(c, Candidate) and c is not candidate)
    error = slot_is_held(backend, others, holder)
    outcome = Outcome(Status.BROKEN, str(error), error.hint, error=error)
    return Verdict.of(candidate, outcome)._replace(evidence=verdict.evidence, ms=verdict.ms)


def _spoiled(judge: Prober, chosen: Candidate | None, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return what torch's autoload spoils, without what a verdict says."""
    spoilers = judge.autoload(chosen)
    return tuple(s.beside(verdicts) for s in spoilers if not any(s.reason in v.reason for v in verdicts))


def _pinned(settings: Settings, find: Find, judge: Prober) -> Choice:
    """One pin must be honoured; of several the first usable one is taken."""
    from accel_core.detection import messages  # here, as most choices are ranked

    single = len(settings.pins) == 1
    considered: Ranked = ()
    verdicts: list[Verdict] = []
    chosen: Candidate | None = None
    accelerator: Accelerator | None = None
    error: errors.AccelError | None = None
    for pin in settings.pins:
        meant = _unblocked(find(pin), settings, find)
        if len({normalize_distribution(c.distribution) for c in meant}) > 1:
            considered = meant
            error = errors.BackendConflictError(messages.conflict(settings.asked, pin, meant))
            break
        if not meant:
            unknown = messages.unknown(pin)
            verdicts.append(Verdict.of(unknown, unknown.outcome))
            if single:
                message = messages.not_found(settings.asked, pin, cpu=_cpu_is_usable(find, judge))
                error = errors.BackendNotFoundError(message)
        for candidate in meant:
            considered += (candidate,)
            verdict = judge.probe(candidate, meant, pinned=single)
            verdicts.append(_after(verdicts, verdict, candidate, considered))
            if verdicts[-1].usable and isinstance(candidate, Candidate):
                chosen, accelerator = candidate, verdicts[-1].accelerator
                break
        if chosen is not None:
            break
    if chosen is None and error is None:
        message = messages.pin_not_honoured(settings, verdicts, cpu=_cpu_is_usable(find, judge))
        error = errors.BackendUnavailableError(message)
        error.__cause__ = next((v.error for v in verdicts if v.error is not None), None)
    spoiled = _spoiled(judge, chosen, verdicts) if chosen else ()
    how = How.PINNED if single else How.PREFERRED
    record = Selection(None, how, tuple(verdicts), autoload=spoiled)
    return Choice(record, chosen, considered, error, accelerator)


def _unblocked(meant: Ranked, settings: Settings, find: Find) -> Ranked:
    """Drop claims that are blocked by policy, if another is left; the claim that stays is judged."""
    kept = tuple(c for c in meant if settings.permits(c.name, c.distribution))
    if kept == meant or not kept:
        return meant
    return find(Pin(kept[0].name, normalize_distribution(kept[0].distribution))) if len(kept) == 1 else kept


def _cpu_is_usable(find: Find, judge: Prober) -> bool:
    """Whether the CPU can be pinned instead of what cannot be used."""
    cpus = find(Pin("cpu"))
    return any(judge.inspect(c, Outcome(Status.NOT_PROBED)).status is Status.NOT_PROBED for c in cpus)


def _conflicts(candidates: Ranked, settings: Settings) -> Mapping[object, Outcome]:
    """The outcomes of names that several distributions declare: they serve none of them.

    A built-in name stays built in.
    """
    claims = [c for c in candidates if isinstance(c, Candidate) and settings.permits(c.name, c.distribution)]
    clashes: dict[object, Outcome] = {}
    for claim in claims:
        own = normalize_distribution(claim.distribution)
        alike = [c for c in claims if c.name == claim.name]
        rivals = {str(c.provenance) for c in alike if normalize_distribution(c.distribution) != own}
        if rivals and not claim.builtin:
            reason = f"{', '.join(sorted(rivals))} declares {claim.name} too"
            hint = f"set DS_ACCELERATOR={claim.name}@{claim.distribution}, or ACCEL_BLOCK the other one"
            clashes[claim] = Outcome(Status.CONFLICT, reason, hint)
    return clashes


def _environ(considered: Ranked) -> dict[str, str]:
    """The variables that mattered, as they are."""
    masks = [c.backend.visibility for c in considered if isinstance(c, Candidate)]
    ours = {*(v.name for v in VARIABLES), *(n for mask in masks for n in mask.filters + mask.variables)}
    return {n: value for n, value in os.environ.items() if n in ours or n.startswith("ACCEL_")}


# --- What a user should know of the settings -----------------------------------------------------------


def _notes(settings: Settings, choice: Choice) -> tuple[str, ...]:
    """Settings that contradict one another, or name nothing and are nearly something that there is."""
    notes = [f"accel-core has no setting {name}. Did you mean {meant}?" for name, meant in settings.misspelt]
    if settings.pins:  # then the others are not looked at
        return (*notes, *_without_its_device(settings, choice))
    names = {candidate.name for candidate in choice.considered}
    for variable, pins in (("ACCEL_ALLOW", settings.allow), ("ACCEL_BLOCK", settings.block)):
        for name in (pin.name for pin in pins if pin.name and pin.name not in names):
            meant = did_you_mean(name, [each for each in names if each[0] == name[0]])
            notes += [f"{variable} names {name}, which is not installed.{meant}"] if meant else []
    return tuple(notes)


def _without_its_device(settings: Settings, choice: Choice) -> list[str]:
    """A pin that is honoured without a device though one is here, or hidden: what runs on it will fail.

    On a login node, where none is here, a pin without a device is what was meant.
    """
    if choice.candidate is None:
        return []
    chosen, visibility = choice.selection.verdicts[-1], choice.candidate.backend.visibility
    may_be_here = chosen.evidence or any(n in os.environ for n in visibility.filters + visibility.variables)
    if chosen.devices != 0 or chosen.absent or not may_be_here:
        return []
    step = f" Next step: {chosen.hint}." if chosen.hint else ""
    why = chosen.reason.removeprefix("pinned, though ")
    return [f"{settings.asked} is honoured without a device: {why}.{step}"]


# --- Every verdict at once -----------------------------------------------------------------------------


class Survey(NamedTuple):
    """Every candidate with its verdict, and the choice."""

    #: The verdict on every candidate, in rank order; it does not depend on `DS_ACCELERATOR`.
    verdicts: tuple[Verdict, ...]
    #: What `get_accelerator()` comes to; `None` where nothing was probed.
    choice: Choice | None
    #: Hardware that is present while no plugin for it is installed, each with the command to run.
    missing_plugins: tuple[str, ...]
    #: What the verdicts are on, one by one, in the same order.
    candidates: Ranked
    #: What the one pin of the settings means; empty where there is none, or several.
    pinned: Ranked


def survey(
    settings: Settings, *, probing: bool = True, autoload: bool = True, load: Load | None = None
) -> Survey:
    """Judge every candidate, as many at once as there are cores, each within the settings' timeout.

    Each candidate is probed in a child process, so this process imports neither torch nor a vendor's package.
    Without `probing`, only the plugins' declarations are read: a backend that passes the steps that import
    nothing is `not_probed`, and the choice is not known. Without `autoload`, nobody tries what torch's
    autoload breaks, which takes one more child after all others. `load` is a loader that has read
    declarations before.
    """
    load = load or loader(settings, isolated=True)
    judge = Prober(settings, isolated=True, autoload=autoload)
    candidates = find_candidates(None, settings, load)
    clash = _conflicts(candidates, settings)
    unprobed = Outcome(Status.NOT_PROBED, "installed, and not probed")
    verdicts = {c: Verdict.of(c, clash[c]) if c in clash else judge.inspect(c, unprobed) for c in candidates}
    missing = missing_plugins(c.name for c in candidates)

    def find(pin: Pin | None) -> Ranked:
        return candidates if pin is None else find_candidates(pin, settings, load)

    pinned = _unblocked(find(settings.pins[0]), settings, find) if len(settings.pins) == 1 else ()
    if not probing:
        return Survey(tuple(verdicts.values()), None, missing, candidates, pinned)
    # Probing says more of these than the verdict that was had without.
    unsettled = [c for c, v in verdicts.items() if v.status is Status.NOT_PROBED or can_be_broken(c, v)]
    if unsettled:
        from accel_core.sandbox import child  # here, as on most machines nothing is left to probe

        probed = child.each(lambda c: judge.probe(c, candidates), unsettled, hardware.usable_cores())
        verdicts |= zip(unsettled, probed, strict=True)
    choice = select(settings, find=find, judge=judge)
    return Survey(tuple(verdicts.values()), choice, missing, candidates, pinned)
