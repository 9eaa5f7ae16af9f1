"""Add the results of experiments to the findings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from accel_tools.doctor.causes import TORCH_IMPORT_CODES
from accel_tools.doctor.experiments.cases import FailedProgram, Phase, Proof, find_cause
from accel_tools.doctor.experiments.table import visibility_variables
from accel_tools.doctor.records import Finding, Level, TopicResult, worst_level
from accel_tools.doctor.topics.compute import missing_devices_finding

__all__ = ["add_proofs"]

#: The beginnings of the codes of findings that report missing devices of a backend.
_DEVICE_CODES = (
    "visible-devices.",
    "candidates.no-device",
    "candidates.settings",
    "compute.missing",
)

#: The codes of findings that a backend does not respond.
_TIMEOUT_CODES = ("candidates.timed-out", "compute.late", "import-hooks.unknown")

_Results = tuple[TopicResult, ...]


def add_proofs(
    programs: Sequence[FailedProgram],
    topics: _Results,
    seconds: float,
    on_experiment: Callable[[str], None],
) -> _Results:
    """Run experiments on failed programs, and add the results to the findings about the failures.

    Args:
        programs: The failed programs.
        topics: The results of the topics.
        seconds: The time limit for all experiments together.
        on_experiment: A function called with the description of each experiment.

    Returns:
        The results of the topics with the proofs.
    """
    deadline = time.monotonic() + seconds
    proofs: dict[str, Proof] = {}
    for program in programs:
        if _is_explained_by_files(program, topics):
            continue
        # Equal failures of the same backend have the same cause, so experiments run only for the first.
        key = f"{program.about} {program.phase} {program.outcome.failure}"
        if key not in proofs:
            proofs[key] = find_cause(program, deadline, on_experiment)
        topics = _add_proof(program, proofs[key], topics)
    return topics


def _is_explained_by_files(program: FailedProgram, topics: _Results) -> bool:
    """Return whether a finding about the failure already has a proof, such as damaged files."""
    reporting = _findings_on_failure(program, topics)
    return any(finding.proof for finding in reporting)


def _add_proof(program: FailedProgram, proof: Proof, topics: _Results) -> _Results:
    """Return the topics' results with the proof added to the first finding about the failure.

    If the program counts too few devices, and no finding reports this, a new finding is added.
    """
    reporting = _findings_on_failure(program, topics)
    if reporting:
        return _add_proof_to_first(program, reporting, proof, topics)
    if program.phase is Phase.COUNT:
        count, expected = program.outcome.count or 0, program.expected or 0
        finding = missing_devices_finding(program.about, count, expected)
        finding = finding._replace(
            step=proof.step, proof=proof.text, is_proven=proof.is_proven
        )
        return _append_to_topic_compute(finding, topics)
    return topics  # No finding reports the failure.


def _add_proof_to_first(
    program: FailedProgram, reporting: Sequence[Finding], proof: Proof, topics: _Results
) -> _Results:
    """Add the proof to the first of the findings that report the same failure.

    If the cause is proven, the other findings are merged into the first finding.
    """
    first, *others = reporting
    facts = dict(first.facts)
    if proof.tried:
        facts["changes without effect"] = proof.tried
    if not proof.is_proven:
        step = _step_without_proof(program, first, proof)
        new = first._replace(proof=proof.text, step=step, facts=facts)
        return tuple(_replace_finding(topic, first, new) for topic in topics)
    # The proof explains all findings, so the first one replaces the others.
    for finding in others:
        facts[f"also, from {finding.code}"] = finding.text
    level = worst_level(finding.level for finding in reporting)
    new = first._replace(
        level=level, step=proof.step, proof=proof.text, is_proven=True, facts=facts
    )
    results = []
    for topic in topics:
        without_others = topic.without_findings(others)
        results.append(_replace_finding(without_others, first, new))
    return tuple(results)


def _step_without_proof(program: FailedProgram, finding: Finding, proof: Proof) -> str:
    """Return the next step if the experiments have not proven a cause."""
    if _are_variables_refuted(program, proof):
        return proof.step  # The finding recommends to unset these variables.
    if proof.step and finding.code in _TIMEOUT_CODES:
        return proof.step  # The finding only recommends to wait longer.
    return finding.step or proof.step


def _are_variables_refuted(program: FailedProgram, proof: Proof) -> bool:
    """Return whether the variables that hide devices are set, and unsetting each of them has no effect."""
    verdict = program.program.verdict
    if verdict is None or program.phase is not Phase.COUNT:
        return False
    set_variables = {
        name
        for name in visibility_variables(verdict.declaration)
        if name in program.program.environ
    }
    return bool(set_variables) and set_variables <= proof.variables_without_effect


def _replace_finding(topic: TopicResult, old: Finding, new: Finding) -> TopicResult:
    findings = tuple(new if finding is old else finding for finding in topic.findings)
    return topic._replace(findings=findings)


def _findings_on_failure(program: FailedProgram, topics: _Results) -> list[Finding]:
    """Return the findings of all topics that report the program's failure."""
    findings = [finding for topic in topics for finding in topic.findings]
    return [finding for finding in findings if _is_about_failure(finding, program)]


def _is_about_failure(finding: Finding, program: FailedProgram) -> bool:
    """Return whether the finding reports the program's failure."""
    if finding.level is Level.OK:
        return False
    if program.phase is Phase.COUNT:
        is_same_backend = finding.about == program.about
        return is_same_backend and finding.code.startswith(_DEVICE_CODES)
    is_torch_import = program.phase is Phase.IMPORT and not program.about
    if is_torch_import and finding.code in TORCH_IMPORT_CODES:
        return True
    if program.outcome.is_timed_out and finding.code in _TIMEOUT_CODES:
        # If the import of torch hangs, it hangs whatever the finding is about.
        return is_torch_import or finding.about == program.about
    return finding.cause == program.outcome.failure


def _append_to_topic_compute(new: Finding, topics: _Results) -> _Results:
    results = []
    for topic in topics:
        findings = topic.findings
        if topic.name == "compute":
            findings = (*findings, new)
        results.append(topic._replace(findings=findings))
    return tuple(results)
