"""Write the first line of the report: the chosen backend and the problems, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from accel_core import Selection, Verdict
from accel_core.verdict import How
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, TopicResult
from accel_tools.doctor.topics.candidates import KNOWN_DIFFERENCES
from accel_tools.doctor.topics.compute import COMPUTED

__all__ = ["summarize"]

#: The beginnings of the sentence that get a capital letter, because they are not a backend's name.
_CAPITALIZED = ("nothing ", "one problem", "the choice ", "no backend ")


def summarize(context: DiagnosticContext, topics: Sequence[TopicResult]) -> str:
    """Return a summary of the report, which ends in a full stop.

    The first sentence has the chosen backend, the requested backends and the problems. Another
    sentence follows for each known numerical difference, and if devices are simulated.
    """
    sentences = [_first_sentence(context, topics)]
    for finding in _findings(topics):
        if finding.code == KNOWN_DIFFERENCES:
            sentences.append(f"Known difference: {finding.what}.")
    simulated = context.environ.get("ACCEL_SIMULATE", "")
    if simulated:
        sentences.append(f"Devices are simulated: ACCEL_SIMULATE={simulated!r}.")
    return " ".join(sentences)


def _first_sentence(context: DiagnosticContext, topics: Sequence[TopicResult]) -> str:
    *clauses, last = [*_standing(context, topics), _problems(topics)]
    sentence = f"{', '.join(clauses)}, and {last}." if clauses else f"{last}."
    if sentence.startswith(_CAPITALIZED):
        sentence = sentence[0].upper() + sentence[1:]
    return sentence


def _findings(topics: Sequence[TopicResult]) -> Iterator[Finding]:
    for topic in topics:
        yield from topic.findings


# --- The backends --------------------------------------------------------------------


def _standing(
    context: DiagnosticContext, topics: Sequence[TopicResult]
) -> Iterator[str]:
    """Yield a clause on each requested backend that is not chosen, and then a clause on the choice."""
    survey = context.finished_survey
    if survey is None or survey.selection is None:
        return
    selection = survey.selection
    if context.requested:
        yield from _usabilities(
            verdict
            for verdict in survey.verdicts
            if context.is_requested(verdict.name, verdict.distribution)
            and not _is_chosen(verdict, selection)
        )
    yield _choice(selection) + _computation(selection.name, topics)


def _usabilities(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield a clause on each backend; a backend is usable if one of its declarations is usable."""
    by_origin: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        origin = (verdict.name, str(verdict.provenance))
        by_origin.setdefault(origin, []).append(verdict)
    for (name, distribution), declarations in by_origin.items():
        if any(verdict.usable for verdict in declarations):
            yield f"{name} is usable too"
            continue
        statuses = dict.fromkeys(verdict.status.label for verdict in declarations)
        yield f"{name} ({distribution}) is not usable ({', '.join(statuses)})"


def _is_chosen(verdict: Verdict, selection: Selection) -> bool:
    is_same_name = verdict.name == selection.name
    return is_same_name and verdict.provenance == selection.provenance


def _choice(selection: Selection) -> str:
    if selection.is_unknown:
        return "the choice is unknown"
    if selection.name is None:
        return "no backend can be chosen"
    if selection.how is How.RANKED:
        return f"{selection.name} is chosen"
    return f"{selection.name} is chosen ({selection.how.label})"


def _computation(chosen: str | None, topics: Sequence[TopicResult]) -> str:
    """Return a clause that the chosen backend's devices computed; empty if this is unknown."""
    for finding in _findings(topics):
        if finding.code == COMPUTED and finding.about == chosen:
            return f" and {finding.what}"
    return ""


# --- The problems --------------------------------------------------------------------


def _problems(topics: Sequence[TopicResult]) -> str:
    """Return a clause with the number of problems and the most serious problem."""
    problems = [*_short_findings(topics)]
    for topic in topics:
        if topic.failed:
            problems.append(f"{topic.title.lower()} could not be examined")
    if len(problems) == 1:
        return f"one problem was found: {problems[0]}"
    if problems:
        return f"{len(problems)} problems were found, the first: {problems[0]}"
    if any(topic.name == "compute" for topic in topics):
        return "nothing is wrong"
    return f"nothing is wrong in: {', '.join(topic.title for topic in topics)}"


def _short_findings(topics: Sequence[TopicResult]) -> list[str]:
    """Return the warnings and errors in short form, errors first.

    A finding that several backends have is listed once.
    """
    faults = [finding for finding in _findings(topics) if finding.level is not Level.OK]
    causes = {finding.facts.get("root cause", "") for finding in faults} - {""}
    errors = [finding for finding in faults if finding.level is Level.ERROR]
    warnings = [finding for finding in faults if finding.level is Level.WARNING]
    short: dict[str, str] = {}
    for finding in (*errors, *warnings):
        short.setdefault(finding.what, _short(finding, causes))
    return list(short.values())


def _short(finding: Finding, causes: Iterable[str]) -> str:
    """Return the finding's proof, or otherwise its first clause without the root cause."""
    if finding.proof.startswith("Proven: "):
        return f"{finding.proof.removeprefix('Proven: ')} (proven)"
    what = finding.what
    for cause in causes:
        what = what.replace(f": {cause}", "")
    what = what.partition("; ")[0]
    return f"{finding.about}: {what}" if finding.about else what
