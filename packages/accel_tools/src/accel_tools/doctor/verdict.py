"""The first line of a visit: what is chosen, and what is wrong, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from accel_core import Selection, Verdict
from accel_core.survey import Survey
from accel_core.verdict import How
from accel_tools.doctor.records import Examined, Finding, Level, Visit
from accel_tools.doctor.topics.candidates import COMPUTES_OTHERWISE
from accel_tools.doctor.topics.compute import COMPUTED

__all__ = ["verdict"]


def verdict(visit: Visit, topics: Sequence[Examined]) -> str:
    """Return the visit's result as one sentence with its full stop, on the requested backends if any."""
    said = [*_standing(visit, visit.surveyed, topics), _wrong(topics)]
    sentence = ", ".join(said[:-1]) + (", and " if said[:-1] else "") + said[-1]
    if sentence.startswith(
        ("nothing ", "one thing ", "what would ")
    ):  # not the name of a backend
        sentence = sentence[0].upper() + sentence[1:]
    simulated = visit.environ.get("ACCEL_SIMULATE", "")
    known = "".join(
        f" Known to compute otherwise: {finding.what}."
        for topic in topics
        for finding in topic.findings
        if finding.code == COMPUTES_OTHERWISE
    )
    said_so = (
        f" Devices are simulated: ACCEL_SIMULATE={simulated!r}." if simulated else ""
    )
    return f"{sentence}.{known}{said_so}"


def _standing(
    visit: Visit, surveyed: Survey | None, topics: Sequence[Examined]
) -> list[str]:
    """Return a clause on each backend that was asked for, then one on the choice."""
    if surveyed is None or surveyed.selection is None:
        return []
    selection = surveyed.selection
    named = [
        v
        for v in surveyed.verdicts
        if visit.names and visit.concerns(v.name, v.provenance.distribution)
    ]
    return [
        *_usabilities([v for v in named if not _is_chosen(v, selection)]),
        _choice(selection) + _computed(selection.name, topics),
    ]


def _computed(name: str | None, topics: Sequence[Examined]) -> str:
    """Return that the chosen backend's devices computed; empty if that is not known."""
    for topic in topics:
        for finding in topic.findings:
            if finding.code == COMPUTED and finding.about == name:
                return f" and {finding.what}"
    return ""


def _usabilities(named: Sequence[Verdict]) -> Iterator[str]:
    """A clause on each backend; several declarations of one share it, and one that is usable is enough."""
    by_source: dict[tuple[str, str], list[Verdict]] = {}
    for found in named:
        by_source.setdefault((found.name, str(found.provenance)), []).append(found)
    for (name, source), verdicts in by_source.items():
        if any(found.usable for found in verdicts):
            yield f"{name} is usable too"
        else:
            statuses = dict.fromkeys(found.status.label for found in verdicts)
            yield f"{name} ({source}) is not usable ({', '.join(statuses)})"


def _is_chosen(found: Verdict, selection: Selection) -> bool:
    return found.name == selection.name and found.provenance == selection.provenance


def _choice(selection: Selection) -> str:
    if selection.is_unknown:
        return "the choice is not known"
    if selection.name is None:
        return "nothing can be chosen"
    how = "" if selection.how is How.RANKED else f" ({selection.how.label})"
    return f"{selection.name} is chosen{how}"


def _wrong(topics: Sequence[Examined]) -> str:
    """Summarize what is wrong in a clause: how many things, and the most serious one."""
    found = [f for topic in topics for f in topic.findings if f.level is not Level.OK]
    wrong = sorted(
        found, key=lambda finding: list(Level).index(finding.level), reverse=True
    )
    # What is wrong with several backends alike is one thing.
    causes = {finding.facts.get("root cause", "") for finding in found} - {""}
    said = list(
        {finding.what: _short(finding, causes) for finding in reversed(wrong)}.values()
    )[::-1]
    said += [
        f"{topic.title.lower()} could not be examined"
        for topic in topics
        if topic.failed
    ]
    if not said and any(topic.name == "compute" for topic in topics):
        return "nothing is wrong"
    if not said:
        return f"nothing is wrong in: {', '.join(topic.title for topic in topics)}"
    return (
        f"one thing is wrong: {said[0]}"
        if len(said) == 1
        else f"{len(said)} things are wrong, first {said[0]}"
    )


def _short(finding: Finding, causes: Iterable[str]) -> str:
    """Its proof, or its first clause without the cause: the whole stands below."""
    if finding.proof.startswith("Proven: "):
        return f"{finding.proof.removeprefix('Proven: ')} (proven)"
    what = finding.what
    for cause in causes:
        what = what.replace(f": {cause}", "")
    what = what.partition("; ")[0]
    return f"{finding.about}: {what}" if finding.about else what
