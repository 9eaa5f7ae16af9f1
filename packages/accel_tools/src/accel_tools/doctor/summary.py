"""Write the first line of the report: the chosen backend and the problems, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from accel_core import Selection, Verdict
from accel_core.verdict import How
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, TopicResult
from accel_tools.doctor.topics.candidates import KNOWN_DIFFERENCES
from accel_tools.doctor.topics.compute import COMPUTED
from accel_tools.doctor.topics.visible_devices import may_hide_devices

__all__ = ["summarize"]


class _Clause(NamedTuple):
    """A clause of the first sentence."""

    text: str
    #: Whether the clause begins with the name of a backend, which gets no capital letter.
    begins_with_name: bool


def summarize(context: DiagnosticContext, topics: Sequence[TopicResult]) -> str:
    """Return the summary of the report, in one or more sentences.

    The first sentence names the chosen backend, the requested backends and the problems. More sentences
    follow if there are known numerical differences, variables that hide devices, or simulated devices.
    """
    sentences = [_first_sentence(context, topics)]
    for finding in _all_findings(topics):
        if finding.code == KNOWN_DIFFERENCES:
            sentences.append(f"Known difference: {finding.what}.")
        if _hides_chosen_devices(finding, context):
            sentences.append(f"{finding.what}.")
    simulated = context.environ.get("ACCEL_SIMULATE", "")
    if simulated:
        sentences.append(f"Devices are simulated: ACCEL_SIMULATE={simulated!r}.")
    return " ".join(sentences)


def _hides_chosen_devices(finding: Finding, context: DiagnosticContext) -> bool:
    """Return whether the finding is about variables that may hide devices of the chosen backend."""
    survey = context.finished_survey
    selection = survey.selection if survey is not None else None
    is_chosen = selection is not None and finding.about == selection.name
    return is_chosen and may_hide_devices(finding)


def _first_sentence(context: DiagnosticContext, topics: Sequence[TopicResult]) -> str:
    problem_clause = _Clause(_problem_clause(topics), begins_with_name=False)
    backend_clauses = list(_backend_clauses(context, topics))
    sentence = f"{problem_clause.text}."
    if backend_clauses:
        texts = [clause.text for clause in backend_clauses]
        sentence = f"{', '.join(texts)}, and {sentence}"
    first_clause = [*backend_clauses, problem_clause][0]
    if first_clause.begins_with_name:
        return sentence
    return sentence[0].upper() + sentence[1:]


def _all_findings(topics: Sequence[TopicResult]) -> Iterator[Finding]:
    for topic in topics:
        yield from topic.findings


# --- The backends --------------------------------------------------------------------


def _backend_clauses(
    context: DiagnosticContext, topics: Sequence[TopicResult]
) -> Iterator[_Clause]:
    """Yield a clause about each requested backend that is not chosen, and one about the choice."""
    survey = context.finished_survey
    if survey is None or survey.selection is None:
        return
    selection = survey.selection
    if context.requested:
        other_verdicts = []
        for verdict in survey.verdicts:
            is_requested = context.is_requested(verdict.name, verdict.distribution)
            if is_requested and not _is_chosen(verdict, selection):
                other_verdicts.append(verdict)
        yield from _usability_clauses(other_verdicts)
    if selection.name == "cpu" and _is_torch_unusable(topics):
        # The CPU is chosen without an import of torch, but needs torch too.
        yield _Clause("no backend can be used", begins_with_name=False)
        return
    choice = _choice_clause(selection)
    computation = _computation_clause(selection.name, topics)
    yield choice._replace(text=choice.text + computation)


def _is_torch_unusable(topics: Sequence[TopicResult]) -> bool:
    """Return whether torch is missing or cannot be imported."""
    return any(
        finding.code == "candidates.torch" and finding.level is Level.ERROR
        for finding in _all_findings(topics)
    )


def _usability_clauses(verdicts: Iterable[Verdict]) -> Iterator[_Clause]:
    """Yield a clause about whether each backend is usable.

    A distribution may declare a backend several times. The backend is usable if one of the declarations is
    usable.
    """
    by_backend: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        name_and_distribution = (verdict.name, str(verdict.provenance))
        by_backend.setdefault(name_and_distribution, []).append(verdict)
    for (name, distribution), same_backend in by_backend.items():
        if any(verdict.usable for verdict in same_backend):
            yield _Clause(f"{name} is usable too", begins_with_name=True)
            continue
        labels = [verdict.status.label for verdict in same_backend]
        without_duplicates = dict.fromkeys(labels)
        statuses = ", ".join(without_duplicates)
        text = f"{name} ({distribution}) is not usable ({statuses})"
        yield _Clause(text, begins_with_name=True)


def _is_chosen(verdict: Verdict, selection: Selection) -> bool:
    is_same_name = verdict.name == selection.name
    return is_same_name and verdict.provenance == selection.provenance


def _choice_clause(selection: Selection) -> _Clause:
    if selection.is_unknown:
        return _Clause("the choice is unknown", begins_with_name=False)
    if selection.name is None:
        return _Clause("no backend can be chosen", begins_with_name=False)
    text = f"{selection.name} is chosen"
    if selection.how is not How.RANKED:
        text = f"{text} ({selection.how.label})"
    return _Clause(text, begins_with_name=True)


def _computation_clause(chosen: str | None, topics: Sequence[TopicResult]) -> str:
    """Return a clause about the devices on which the chosen backend computed.

    Returns an empty string if none computed.
    """
    for finding in _all_findings(topics):
        if finding.code == COMPUTED and finding.about == chosen:
            return f" and {finding.what}"
    return ""


# --- The problems --------------------------------------------------------------------


def _problem_clause(topics: Sequence[TopicResult]) -> str:
    """Return a clause with the number of problems and the most serious problem."""
    problems = _shortened_problems(topics)
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


def _shortened_problems(topics: Sequence[TopicResult]) -> list[str]:
    """Return the errors and then the warnings as short clauses.

    A finding with the same text for several backends is listed once.
    """
    errors, warnings = [], []
    for finding in _all_findings(topics):
        if finding.level is Level.OK:
            continue
        if finding.level is Level.ERROR:
            errors.append(finding)
        else:
            warnings.append(finding)
    # A text that several findings have is listed once.
    clause_by_text: dict[str, str] = {}
    for finding in (*errors, *warnings):
        clause_by_text.setdefault(finding.text, _shorten(finding))
    return list(clause_by_text.values())


def _shorten(finding: Finding) -> str:
    """Return the proven cause, or otherwise the finding's clause without the cause and the details."""
    if finding.is_proven:
        return f"{finding.proof} (proven)"
    if finding.about:
        return f"{finding.about}: {finding.what}"
    return finding.what
