"""Candidates and settings to a `Selection`: which backend, how it came to be chosen, and why no other.

Ranked choice goes down the order and stops at the first usable backend, so nothing below it is imported.
A pin looks at what it names and nothing else.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from accel_core.backend import Provenance
from accel_core.detection import messages as report
from accel_core.detection.discovery import Candidate, discover, find
from accel_core.detection.probe import examine, probe
from accel_core.detection.records import Outcome, Status, Verdict, verdict
from accel_core.errors import AccelError, BackendConflictError, BackendNotFoundError, BackendUnavailableError
from accel_core.machine import vendors
from accel_core.settings import VARIABLES, Pin, Settings, normalize_distribution

__all__ = ["How", "Selection", "choose", "conflict", "conflicts", "unserved"]


class How(str, enum.Enum):
    """How a backend came to be chosen."""

    PINNED = "pinned"
    PREFERRED = "preferred"
    RANKED = "ranked"
    FALLBACK = "fallback"
    SET = "set"

    def __str__(self) -> str:
        return self.value


class Selection(NamedTuple):
    """The record of one choice; `print(selection)` explains it, `to_dict()` is for JSON."""

    #: The backend's name; `None` where the choice failed, and `problem` says why.
    chosen: str | None
    how: How
    #: Every verdict, in the order in which the backends were considered.
    verdicts: tuple[Verdict, ...]
    #: Where the chosen backend comes from.
    provenance: Provenance | None = None
    #: The process that chose.
    pid: int = 0
    #: The environment variables that mattered, as they were.
    environ: Mapping[str, str] = MappingProxyType({})
    #: Hardware that was seen while no plugin for it is installed, each with the command to run.
    unserved: tuple[str, ...] = ()
    #: What the choice took, in milliseconds.
    ms: float = 0.0
    problem: str = ""

    def to_dict(self) -> dict[str, object]:
        """The record as JSON can hold it."""
        return {
            "chosen": self.chosen,
            "how": self.how.value,
            "distribution": self.provenance.distribution if self.provenance else None,
            "version": self.provenance.version if self.provenance else None,
            "pid": self.pid,
            "ms": round(self.ms, 3),
            "environ": dict(self.environ),
            "unserved": list(self.unserved),
            "problem": self.problem,
            "verdicts": [v.to_dict() for v in self.verdicts],
        }

    def __str__(self) -> str:
        return report.describe(self)


class Choice(NamedTuple):
    """A selection, the candidate it names and the backends beside it; or the error it came to."""

    selection: Selection
    candidate: Candidate | None
    candidates: tuple[Candidate, ...]
    error: AccelError | None = None


def choose(settings: Settings, environ: Mapping[str, str], *, isolated: bool = False) -> Choice:
    """Choose as `settings` say; a choice that fails comes back with its error, and still with its record.

    `isolated`: probe in child processes only, so that this process imports no torch and no vendor.
    """
    start = time.perf_counter()
    if settings.pins:
        choice = _pinned(settings, isolated=isolated)
    else:
        choice = _ranked(settings, isolated=isolated)
    return _complete(choice, environ, (time.perf_counter() - start) * 1e3)


def _ranked(settings: Settings, *, isolated: bool) -> Choice:
    candidates = discover()
    claims = conflicts(candidates, settings)
    verdicts: list[Verdict] = []
    chosen: Candidate | None = None
    for candidate in candidates:
        if chosen is None:
            verdicts.append(_judge(candidate, settings, candidates, claims, isolated=isolated))
            if verdicts[-1].usable:
                chosen = candidate
        else:
            verdicts.append(_below(candidate, settings, claims, chosen))
    how = How.FALLBACK if chosen is not None and chosen.builtin and chosen.name == "cpu" else How.RANKED
    error: AccelError | None = None
    if chosen is None:
        error = BackendUnavailableError(report.nothing_usable(verdicts))
    elif how is How.FALLBACK and settings.strict:
        alone = unserved(c.name for c in candidates)
        if alone or any(_is_reason_to_refuse(v) for v in verdicts):
            error = BackendUnavailableError(report.refused_cpu(verdicts, alone))
    return _result(chosen, candidates, verdicts, how, error)


def _is_reason_to_refuse(verdict: Verdict) -> bool:
    """Whether a strict choice refuses the CPU over this: it is broken, or its hardware is here."""
    return verdict.status is not Status.BLOCKED and (verdict.status.is_failure or bool(verdict.evidence))


def _pinned(settings: Settings, *, isolated: bool) -> Choice:
    """One pin must be honoured; of several the first usable one is taken."""
    single = len(settings.pins) == 1
    how = How.PINNED if single else How.PREFERRED
    candidates: list[Candidate] = []
    verdicts: list[Verdict] = []
    for pin in settings.pins:
        found = _unblocked(find(pin), settings)
        if len({normalize_distribution(c.distribution) for c in found}) > 1:
            return _result(
                None, found, verdicts, how, BackendConflictError(report.conflict(settings.asked, pin, found))
            )
        if not found:
            unknown = Candidate(pin.name, Provenance(pin.distribution, ""))
            verdicts.append(verdict(unknown, report.unknown(pin)))
            if single:
                return _result(
                    None, (), verdicts, how, BackendNotFoundError(report.not_found(settings.asked, pin))
                )
        for candidate in found:
            candidates.append(candidate)
            verdicts.append(probe(candidate, settings, found, pinned=single, isolated=isolated))
            if verdicts[-1].usable:
                return _result(candidate, tuple(candidates), verdicts, how, None)
    error = BackendUnavailableError(report.pin_not_honoured(settings, verdicts))
    error.__cause__ = next((v.error for v in verdicts if v.error is not None), None)
    return _result(None, tuple(candidates), verdicts, how, error)


def _unblocked(found: tuple[Candidate, ...], settings: Settings) -> tuple[Candidate, ...]:
    """Of several distributions' claims those that the policy leaves; one claim stays, to be judged."""
    kept = tuple(c for c in found if settings.permits(c.name, c.distribution))
    if kept == found or not kept:
        return found
    return find(Pin(kept[0].name, normalize_distribution(kept[0].distribution))) if len(kept) == 1 else kept


def conflicts(candidates: Iterable[Candidate], settings: Settings) -> dict[str, list[Candidate]]:
    """Names that several distributions declare, each with the claimants that the policy permits."""
    claims: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.backend is not None and settings.permits(candidate.name, candidate.distribution):
            claims.setdefault(candidate.name, []).append(candidate)
    return {
        name: claimants
        for name, claimants in claims.items()
        if len({normalize_distribution(c.distribution) for c in claimants}) > 1
    }


def _judge(
    candidate: Candidate,
    settings: Settings,
    candidates: tuple[Candidate, ...],
    claims: Mapping[str, list[Candidate]],
    *,
    isolated: bool,
) -> Verdict:
    clash = conflict(candidate, claims)
    if clash is not None:
        return verdict(candidate, clash)
    return probe(candidate, settings, candidates, isolated=isolated)


def conflict(candidate: Candidate, claims: Mapping[str, list[Candidate]]) -> Outcome | None:
    """A name that several distributions declare serves none of them; a built-in name stays built in."""
    claimants = claims.get(candidate.name, [])
    if candidate not in claimants or candidate.builtin:
        return None
    rivals = ", ".join(
        sorted({str(c.provenance) for c in claimants if c.distribution != candidate.distribution})
    )
    return Outcome(
        Status.CONFLICT,
        f"{rivals} declares {candidate.name} too",
        f"set DS_ACCELERATOR={candidate.name}@{candidate.distribution}, or ACCEL_BLOCK the other one",
    )


def _below(
    candidate: Candidate, settings: Settings, claims: Mapping[str, list[Candidate]], chosen: Candidate
) -> Verdict:
    """What is known without importing anything about a candidate that ranks below the chosen one."""
    outcome = conflict(candidate, claims) or examine(candidate, settings)
    return verdict(candidate, outcome or Outcome(Status.NOT_PROBED, f"it ranks below {chosen.name}"))


def unserved(names: Iterable[str]) -> tuple[str, ...]:
    """Hardware on this machine that no backend among `names` is for, each with the command to run."""
    served = {name.partition(".")[0] for name in names}
    return tuple(
        f"{known.label} is present ({known.evidence}) and its plugin is not installed: "
        f"pip install {known.distribution}"
        for known in vendors.known_hardware()
        # An integrated GPU is in every other laptop: not worth a warning at every start.
        if known.backend not in served and not known.integrated
    )


def _result(
    chosen: Candidate | None,
    candidates: tuple[Candidate, ...],
    verdicts: list[Verdict],
    how: How,
    error: AccelError | None,
) -> Choice:
    candidate = None if error else chosen
    selection = Selection(
        chosen=candidate.name if candidate else None,
        how=how,
        verdicts=tuple(verdicts),
        provenance=candidate.provenance if candidate else None,
        pid=os.getpid(),
        unserved=unserved(c.name for c in candidates) if how is How.FALLBACK else (),
        problem=str(error) if error else "",
    )
    return Choice(selection, candidate, candidates, error)


def _complete(choice: Choice, environ: Mapping[str, str], ms: float) -> Choice:
    names = [v.name for v in VARIABLES]
    names += [n for c in choice.candidates if c.backend for n in c.backend.visible_devices]
    noted = {name: environ[name] for name in dict.fromkeys(names) if name in environ}
    return choice._replace(selection=choice.selection._replace(environ=noted, ms=ms))
