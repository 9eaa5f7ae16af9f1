"""Write the first line of the report: the chosen backend and the problems, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from accel_core import Selection, Verdict
from accel_core.verdict import How
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, TopicResult
from accel_tools.doctor.topics.candidates import KNOWN_DIFFERENCES
from accel_tools.doctor.topics.compute import COMPUTED
from accel_tools.doctor.topics.visible_devices import may_hide_devices

__all__ = ["summarize"]

#: Beginnings of the first sentence that get a capital letter. Any other first word is the name of a
#: backend, which is not changed.
_CAPITALIZED = ("nothing ", "one problem", "the choice ", "no backend ")


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
    sentence = f"{_problem_clause(topics)}."
    backend_clauses = list(_backend_clauses(context, topics))
    if backend_clauses:
        sentence = f"{', '.join(backend_clauses)}, and {sentence}"
    if sentence.startswith(_CAPITALIZED):
        sentence = sentence[0].upper() + sentence[1:]
    return sentence


def _all_findings(topics: Sequence[TopicResult]) -> Iterator[Finding]:
    for topic in topics:
        yield from topic.findings


# --- The backends --------------------------------------------------------------------


def _backend_clauses(
    context: DiagnosticContext, topics: Sequence[TopicResult]
) -> Iterator[str]:
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
        yield "no backend can be used"
        return
    yield _choice_clause(selection) + _computation_clause(selection.name, topics)


def _is_torch_unusable(topics: Sequence[TopicResult]) -> bool:
    """Return whether torch is missing or cannot be imported."""
    return any(
        finding.code == "candidates.torch" and finding.level is Level.ERROR
        for finding in _all_findings(topics)
    )


def _usability_clauses(verdicts: Iterable[Verdict]) -> Iterator[str]:
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
            yield f"{name} is usable too"
            continue
        labels = [verdict.status.label for verdict in same_backend]
        without_duplicates = dict.fromkeys(labels)
        yield f"{name} ({distribution}) is not usable ({', '.join(without_duplicates)})"


def _is_chosen(verdict: Verdict, selection: Selection) -> bool:
    is_same_name = verdict.name == selection.name
    return is_same_name and verdict.provenance == selection.provenance


def _choice_clause(selection: Selection) -> str:
    if selection.is_unknown:
        return "the choice is unknown"
    if selection.name is None:
        return "no backend can be chosen"
    if selection.how is How.RANKED:
        return f"{selection.name} is chosen"
    return f"{selection.name} is chosen ({selection.how.label})"


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
    root_causes = set()
    for finding in _all_findings(topics):
        if finding.level is Level.OK:
            continue
        if finding.level is Level.ERROR:
            errors.append(finding)
        else:
            warnings.append(finding)
        root_causes.add(finding.facts.get("root cause", ""))
    root_causes.discard("")
    clause_by_text: dict[
        str, str
    ] = {}  # A text that several findings have is listed once.
    for finding in (*errors, *warnings):
        clause_by_text.setdefault(finding.what, _shorten(finding, root_causes))
    return list(clause_by_text.values())


def _shorten(finding: Finding, root_causes: Iterable[str]) -> str:
    """Return the finding's proof, or if it has none, its first clause without the root cause."""
    if finding.proof.startswith("Proven: "):
        return f"{finding.proof.removeprefix('Proven: ')} (proven)"
    clause = finding.what
    for root_cause in root_causes:
        clause = clause.replace(f": {root_cause}", "")
    clause = clause.partition("; ")[0]
    return f"{finding.about}: {clause}" if finding.about else clause
