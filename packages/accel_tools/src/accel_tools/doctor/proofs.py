"""Add the results of experiments to the findings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from accel_tools.doctor.causes import TORCH_FAILS
from accel_tools.doctor.experiments.cases import Case, Goal, Proof, investigate
from accel_tools.doctor.records import Finding, Level, TopicResult, worst_level
from accel_tools.doctor.topics.compute import missing_devices

__all__ = ["add_proofs"]

#: The beginnings of the codes of findings that report missing devices of a backend.
_DEVICE_CODES = (
    "visible-devices.",
    "candidates.no-device",
    "candidates.settings",
    "compute.missing",
)

#: The codes of findings that a backend does not respond.
_LATE_CODES = ("candidates.timed-out", "compute.late")

_Results = tuple[TopicResult, ...]


def add_proofs(
    cases: Sequence[Case],
    topics: _Results,
    seconds: float,
    show: Callable[[str], None],
) -> _Results:
    """Run experiments on each case, and return the topics with the experiments' results.

    Args:
        cases: The failed programs.
        topics: The results of the topics.
        seconds: The time limit for all experiments together.
        show: A function that is called with the description of each experiment.
    """
    end = time.monotonic() + seconds
    proofs: dict[str, Proof] = {}
    for case in cases:
        # Equal failures of the same backend have the same cause, so only the first is investigated.
        key = f"{case.about} {case.goal} {case.outcome.failure}"
        if _is_explained(case, topics):
            continue
        if key not in proofs:
            proofs[key] = investigate(case, end, show)
        topics = _add_proof(case, proofs[key], topics)
    return topics


def _is_explained(case: Case, topics: _Results) -> bool:
    """Return whether the files of a package explain the case already."""
    findings = [finding for topic in topics for finding in topic.findings]
    return any(_reports(finding, case) and finding.proof for finding in findings)


def _add_proof(case: Case, proof: Proof, topics: _Results) -> _Results:
    """Return the topics with the proof added to the finding that reports the case."""
    findings = [finding for topic in topics for finding in topic.findings]
    reporting = [finding for finding in findings if _reports(finding, case)]
    if reporting:
        return _replace_first(reporting, proof, topics)
    if case.goal is Goal.COUNT:
        return _append_to_compute(_missing_devices(case, proof), topics)
    return topics


def _replace_first(
    reporting: Sequence[Finding], proof: Proof, topics: _Results
) -> _Results:
    """Return the topics with the proof added to the first of the findings that report the case.

    If the cause is proven, the other findings are merged into the first finding.
    """
    first, *others = reporting
    facts = dict(first.facts)
    if proof.tried:
        facts["changes without effect"] = proof.tried
    if not proof.is_proven:
        step = first.step or proof.step
        proven = first._replace(proof=proof.text, step=step, facts=facts)
        return tuple(_replace(topic, first, proven) for topic in topics)
    for finding in others:
        facts[f"also, from {finding.code}"] = finding.what
    level = worst_level(finding.level for finding in reporting)
    proven = first._replace(level=level, step=proof.step, proof=proof.text, facts=facts)
    return tuple(_replace(topic.without(others), first, proven) for topic in topics)


def _replace(topic: TopicResult, old: Finding, new: Finding) -> TopicResult:
    findings = tuple(new if finding is old else finding for finding in topic.findings)
    return topic._replace(findings=findings)


def _reports(finding: Finding, case: Case) -> bool:
    """Return whether the finding is about the failure of the case."""
    if finding.level is Level.OK:
        return False
    if case.goal is Goal.COUNT:
        is_same_backend = finding.about == case.about
        return is_same_backend and finding.code.startswith(_DEVICE_CODES)
    is_torch_import = case.goal is Goal.IMPORT and not case.about
    if is_torch_import and finding.code in TORCH_FAILS:
        return True
    if case.outcome.is_late and finding.code in _LATE_CODES:
        return finding.about == case.about
    failure = case.outcome.failure
    return failure == finding.facts.get("root cause") or failure in finding.what


def _missing_devices(case: Case, proof: Proof) -> Finding:
    """Return a finding on missing devices, for a case that no topic has reported."""
    count, expected = case.outcome.count or 0, case.expected or 0
    finding = missing_devices(case.about, count, expected)
    return finding._replace(step=proof.step, proof=proof.text)


def _append_to_compute(new: Finding, topics: _Results) -> _Results:
    results = {topic.name: topic for topic in topics}
    compute = results["compute"]
    results["compute"] = compute._replace(findings=(*compute.findings, new))
    return tuple(results.values())
