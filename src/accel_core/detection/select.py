"""Candidates and a judge to a choice: the one place that decides.

Nothing here looks at the machine: what there is comes from `find`, what it is worth from `judge`. Ranked
choice goes down the order and stops at the first usable backend, so that a judge who probes when he is asked
imports nothing below it. A pin looks at what it names and nothing else.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from accel_core.backend import Provenance
from accel_core.detection import discovery
from accel_core.detection.probe import Prober
from accel_core.detection.records import (
    Candidate,
    Choice,
    How,
    Outcome,
    Selection,
    Status,
    Unloaded,
    Verdict,
    verdict,
)
from accel_core.errors import AccelError, BackendConflictError, BackendNotFoundError, BackendUnavailableError
from accel_core.machine.vendors import missing_plugins
from accel_core.settings import ACCEL_ALLOW, ACCEL_BLOCK, VARIABLES, Pin, Settings, normalize_distribution

if TYPE_CHECKING:
    from collections.abc import Callable

    from accel_core.detection.autoload import Spoiler

    #: The candidates that a pin means, `None` for all of them; in rank order.
    Find = Callable[[Pin | None], tuple[Candidate | Unloaded, ...]]

_log = logging.getLogger(__name__)

__all__ = ["conflict", "conflicts", "select"]


def select(
    settings: Settings, *, isolated: bool = False, find: Find | None = None, judge: Prober | None = None
) -> Choice:
    """Choose as `settings` say; a choice that fails comes back with its error, and still with its record.

    Without `find` and `judge` it looks for itself; `isolated`: plugins and vendors in child processes only.
    """
    start = time.perf_counter()
    if find is None:
        load = discovery.loader(settings, isolated=isolated)
        find = functools.partial(discovery.find, settings=settings, load=load)
    judge = judge or Prober(settings, isolated=isolated)
    choice = (_pinned if settings.pins else _ranked)(settings, find, judge)
    if judge.isolated and len(settings.pins) != 1:
        choice = _as_far_as_known(choice)
    ms = (time.perf_counter() - start) * 1e3
    chosen = choice.selection.chosen
    _log.info("%s, after %.1f ms", f"choose {chosen}" if chosen else "nothing can be chosen", ms)
    selection = choice.selection._replace(
        notes=_notes(settings, choice),
        pid=os.getpid(),
        environ=_environ(choice.considered),
        ms=ms,
    )
    return choice._replace(selection=selection)


def _as_far_as_known(choice: Choice) -> Choice:
    """The choice; where a backend that comes before it gave no answer in time, it is not known.

    A program goes on without that backend, or waits for it: no command is to say which.
    """
    late = [v for v in choice.selection.verdicts if v.status is Status.TIMED_OUT]
    if not late:
        return choice
    from accel_core.detection import messages  # here, as nearly every choice is known

    error = BackendUnavailableError(messages.not_known(late))
    selection = choice.selection._replace(chosen=None, provenance=None, problem=str(error))
    return choice._replace(selection=selection, candidate=None, error=error)


def _environ(considered: Iterable[Candidate | Unloaded]) -> dict[str, str]:
    """The variables that mattered, as they are."""
    names = [v.name for v in VARIABLES]
    names += [name for name in os.environ if name.startswith("ACCEL_")]  # a plugin's own too
    for candidate in considered:
        if isinstance(candidate, Candidate):
            names += candidate.backend.visibility.filters + candidate.backend.visibility.variables
    return {name: os.environ[name] for name in dict.fromkeys(names) if name in os.environ}


def _notes(settings: Settings, choice: Choice) -> tuple[str, ...]:
    """Settings that contradict one another, or name nothing and are nearly something that there is."""
    notes = [
        f"{name} is not a setting of accel-core. Did you mean {meant}?" for name, meant in settings.misspelt
    ]
    if settings.pins:  # then the others are not looked at
        notes += _without_its_device(settings, choice)
        return tuple(notes)
    names = {candidate.name for candidate in choice.considered}
    for variable, pins in ((ACCEL_ALLOW, settings.allow), (ACCEL_BLOCK, settings.block)):
        for name in (pin.name for pin in pins if pin.name and pin.name not in names):
            from difflib import get_close_matches  # for the few who have one

            close = get_close_matches(name, [each for each in names if each[0] == name[0]], n=1)
            if close:
                notes.append(
                    f"{variable.name} names {name}, which is not installed. Did you mean {close[0]!r}?"
                )
    return tuple(notes)


def _without_its_device(settings: Settings, choice: Choice) -> list[str]:
    """A pin that is honoured without a device though one is here, or hidden: what runs on it will fail.

    On a login node, where none is here, a pin without a device is what was meant.
    """
    chosen = choice.selection.verdicts[-1] if choice.candidate else None
    if choice.candidate is None or chosen is None or chosen.devices != 0 or chosen.absent:
        return []
    backend = choice.candidate.backend
    names = backend.visibility.filters + backend.visibility.variables
    if not (chosen.evidence or any(name in os.environ for name in names)):
        return []
    step = f" Next step: {chosen.hint}." if chosen.hint else ""
    why = chosen.reason.removeprefix("pinned, though ")
    return [f"{settings.asked} is honoured without a device: {why}.{step}"]


def _ranked(settings: Settings, find: Find, judge: Prober) -> Choice:
    candidates = find(None)
    claims = conflicts(candidates, settings)
    verdicts: list[Verdict] = []
    chosen: Candidate | None = None
    for candidate in candidates:
        clash = conflict(candidate, claims)
        if clash is not None:
            verdicts.append(verdict(candidate, clash))
        elif chosen is not None:
            below = Outcome(Status.NOT_PROBED, f"it ranks below {chosen.name}")
            verdicts.append(judge.inspect(candidate, below))
        else:
            verdicts.append(judge.probe(candidate, candidates))
            chosen = candidate if verdicts[-1].usable and isinstance(candidate, Candidate) else None
    fallback = chosen is not None and chosen.builtin and chosen.name == "cpu"
    how = How.FALLBACK if fallback else How.RANKED
    missing = missing_plugins(c.name for c in candidates) if fallback else ()
    spoiled = _untold(judge.autoload(chosen, fallback=fallback), verdicts)
    more = (*missing, *spoiled)
    error: AccelError | None = None
    if chosen is None or (fallback and _refuses_cpu(settings, verdicts, more)):
        from accel_core.detection import messages  # here, as a choice that succeeds says nothing

        why = messages.refused_cpu(settings, verdicts, more) if chosen else messages.nothing_usable(verdicts)
        error = BackendUnavailableError(why)
    return _choice(chosen, candidates, verdicts, how, error, missing, spoiled)


def _refuses_cpu(settings: Settings, verdicts: Iterable[Verdict], more: tuple[str, ...]) -> bool:
    """Whether `ACCEL_STRICT` forbids the CPU: always, or where something needs mending."""
    if settings.strict == "always":
        return True
    return bool(settings.strict) and bool(more or any(v.needs_mending for v in verdicts))


def _untold(spoilers: Iterable[Spoiler], verdicts: list[Verdict]) -> tuple[str, ...]:
    """Return what torch's autoload spoils, without what a verdict says: cause and remedy, or all."""

    def shortened(line: str, v: Verdict) -> str:
        said = rf": {re.escape(v.cause)}(\. [^:]*){'' if v.hint[:6] in ('', 'report') else ':.*'}"
        return re.sub(said, rf", for the same reason as {v.name}\1", line) if v.cause else line

    lines = [str(s) for s in spoilers if not any(s.reason in v.reason for v in verdicts)]
    return tuple(functools.reduce(shortened, verdicts, line) for line in lines)


def _pinned(settings: Settings, find: Find, judge: Prober) -> Choice:
    """One pin must be honoured; of several the first usable one is taken."""
    from accel_core.detection import messages  # here, as most choices are ranked

    single = len(settings.pins) == 1
    how = How.PINNED if single else How.PREFERRED
    considered: list[Candidate | Unloaded] = []
    verdicts: list[Verdict] = []
    for pin in settings.pins:
        meant = _unblocked(find(pin), settings, find)
        if len({normalize_distribution(c.distribution) for c in meant}) > 1:
            conflicting = BackendConflictError(messages.conflict(settings.asked, pin, meant))
            return _choice(None, meant, verdicts, how, conflicting)
        if not meant:
            unknown = Unloaded(pin.name, Provenance(pin.distribution, ""), messages.unknown(pin))
            verdicts.append(verdict(unknown, unknown.outcome))
            if single:
                others = functools.cache(lambda: _instead(settings, find, judge))
                missing = BackendNotFoundError(messages.not_found(settings.asked, pin, others))
                return _choice(None, (), verdicts, how, missing)
        for candidate in meant:
            considered.append(candidate)
            verdicts.append(judge.probe(candidate, meant, pinned=single))
            if verdicts[-1].usable:
                taken = candidate if isinstance(candidate, Candidate) else None
                spoiled = _untold(judge.autoload(taken, fallback=False), verdicts)
                return _choice(taken, tuple(considered), verdicts, how, None, (), spoiled)
    message = messages.pin_not_honoured(settings, verdicts, _instead(settings, find, judge))
    error = BackendUnavailableError(message)
    error.__cause__ = next((v.error for v in verdicts if v.error is not None), None)
    return _choice(None, tuple(considered), verdicts, how, error)


def _instead(settings: Settings, find: Find, judge: Prober) -> list[str]:
    """Other names to pin: of what nothing rules out those that work when a child process tries them."""
    asked_for = {"generic", *(pin.name for pin in settings.pins)}  # generic is no advice: it has to be there
    candidates = find(None)
    claims = conflicts(candidates, settings)
    names: list[str] = []
    for candidate in candidates:
        if candidate.name in (*asked_for, *names, "cpu") or conflict(candidate, claims):
            continue
        possible = judge.inspect(candidate, Outcome(Status.NOT_PROBED)).status is Status.NOT_PROBED
        if possible and judge.probe(candidate, candidates, isolated=True).usable:
            names.append(candidate.name)
    return [*sorted(names), *(["cpu"] if "cpu" not in asked_for else [])]


def _unblocked(
    meant: tuple[Candidate | Unloaded, ...], settings: Settings, find: Find
) -> tuple[Candidate | Unloaded, ...]:
    """Drop claims that are blocked by policy, if another is left; the claim that stays is judged."""
    kept = tuple(c for c in meant if settings.permits(c.name, c.distribution))
    if kept == meant or not kept:
        return meant
    return find(Pin(kept[0].name, normalize_distribution(kept[0].distribution))) if len(kept) == 1 else kept


def conflicts(candidates: Iterable[Candidate | Unloaded], settings: Settings) -> dict[str, list[Candidate]]:
    """Names that several distributions declare, each with the claimants that the policy permits."""
    claims: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if isinstance(candidate, Candidate) and settings.permits(candidate.name, candidate.distribution):
            claims.setdefault(candidate.name, []).append(candidate)
    return {
        name: claimants
        for name, claimants in claims.items()
        if len({normalize_distribution(c.distribution) for c in claimants}) > 1
    }


def conflict(candidate: Candidate | Unloaded, claims: Mapping[str, list[Candidate]]) -> Outcome | None:
    """A name that several distributions declare serves none of them; a built-in name stays built in."""
    claimants = claims.get(candidate.name, [])
    if not any(claimant is candidate for claimant in claimants) or candidate.builtin:
        return None
    rivals = ", ".join(
        sorted({str(c.provenance) for c in claimants if c.distribution != candidate.distribution})
    )
    return Outcome(
        Status.CONFLICT,
        f"{rivals} declares {candidate.name} too",
        f"set DS_ACCELERATOR={candidate.name}@{candidate.distribution}, or ACCEL_BLOCK the other one",
    )


def _choice(
    chosen: Candidate | None,
    considered: tuple[Candidate | Unloaded, ...],
    verdicts: list[Verdict],
    how: How,
    error: AccelError | None,
    missing: tuple[str, ...] = (),
    autoload: tuple[str, ...] = (),
) -> Choice:
    candidate = chosen if error is None else None
    selection = Selection(
        chosen=candidate.name if candidate else None,
        how=how,
        verdicts=tuple(verdicts),
        provenance=candidate.provenance if candidate else None,
        missing_plugins=missing,
        autoload=autoload,
        problem=str(error) if error else "",
    )
    return Choice(selection, candidate, considered, error)
