"""Each backend: whether it is usable, what speaks for and against it, the root cause and the next step."""

from __future__ import annotations

from collections.abc import Iterator

from accel_core.detection.plain import is_uninstalled
from accel_core.detection.records import Status, Verdict
from accel_core.detection.survey import Survey
from accel_core.doctor.records import Finding, Level, Topic, Visit

__all__ = ["TOPIC"]


def _examine(visit: Visit) -> Iterator[Finding]:
    surveyed = visit.survey()
    for verdict in surveyed.verdicts:
        if visit.concerns(verdict.name, verdict.provenance.distribution):
            yield _finding(verdict, visit)
    yield from _unknown(surveyed, visit)
    yield from _choice(surveyed)


def _finding(verdict: Verdict, visit: Visit) -> Finding:
    level = _level(verdict, visit)
    return Finding(
        level,
        f"candidates.{verdict.status.value}".replace("_", "-"),
        verdict.status.words + (f": {verdict.reason}" if verdict.reason else ""),
        verdict.hint if level is not Level.OK or not is_uninstalled(verdict) else "",
        verdict.name,
        _facts(verdict),
    )


def _level(verdict: Verdict, visit: Visit) -> Level:
    """What is not here, or was blocked, is well; what is here, or asked for, and does not work is not."""
    if verdict.usable or verdict.status is Status.BLOCKED:
        return Level.OK
    asked = any(pin.matches(verdict.name, verdict.provenance.distribution) for pin in visit.settings.pins)
    present = bool(verdict.evidence) and verdict.status is not Status.STANDS_ASIDE
    failed = verdict.status.is_failure or verdict.broken or verdict.status is Status.CONFLICT
    if present or (asked and failed):
        return Level.ERROR
    return Level.WARNING if failed else Level.OK


def _facts(verdict: Verdict) -> dict[str, str]:
    facts = {
        "distribution": str(verdict.provenance),
        "cause": verdict.cause if verdict.cause not in verdict.reason else "",
        "hardware": verdict.evidence,
    }
    return {name: value for name, value in facts.items() if value}


def _unknown(surveyed: Survey, visit: Visit) -> Iterator[Finding]:
    """The names that were asked for and that nobody declares."""
    from accel_core.detection.messages import unknown

    for pin in visit.names:
        if not any(pin.matches(v.name, v.provenance.distribution) for v in surveyed.verdicts):
            outcome = unknown(pin)
            yield Finding(Level.ERROR, "candidates.not-declared", outcome.reason, outcome.hint, str(pin))


def _choice(surveyed: Survey) -> Iterator[Finding]:
    """That nothing can be chosen, and what is odd in the settings."""
    if surveyed.choice is None:
        return
    selection = surveyed.choice.selection
    if selection.chosen is None:
        problem = selection.problem.partition("\n")[0].rstrip(".")
        yield Finding(Level.ERROR, "candidates.nothing-chosen", problem, "accel why")
    for note in selection.notes:
        yield Finding(Level.WARNING, "candidates.settings", note.rstrip("."))


TOPIC = Topic("candidates", "Backends", _examine)
