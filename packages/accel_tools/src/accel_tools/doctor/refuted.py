"""Downgrade findings that a computation on the devices refutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accel_tools.doctor.records import Finding, Level, TopicResult
from accel_tools.doctor.topics.compute import COMPUTED

__all__ = ["downgrade_checks_of_proven_backends", "downgrade_refuted_findings"]


def downgrade_refuted_findings(
    topics: Sequence[TopicResult], chosen: str | None
) -> tuple[TopicResult, ...]:
    """Lower the level of findings to `ok` if a computation on the devices refutes them.

    A plugin's failed check is refuted if the backend's devices computed correct results. The advice to make
    a framework use the backend called `chosen` is refuted if a computation on this backend failed.
    """
    success_by_backend: dict[str, str] = {}
    failed_backends = set()
    for topic in topics:
        for finding in topic.findings:
            if finding.code == COMPUTED:
                success_by_backend[finding.about] = finding.what
            elif _is_failed_computation(finding):
                failed_backends.add(finding.about)
    results = []
    for topic in topics:
        findings = []
        for finding in topic.findings:
            result = _downgrade_failed_check(finding, success_by_backend)
            # A framework gains nothing from a backend that does not compute.
            if chosen in failed_backends:
                result = _downgrade_framework_advice(result)
            findings.append(result)
        results.append(topic._replace(findings=tuple(findings)))
    return tuple(results)


def downgrade_checks_of_proven_backends(
    topics: Sequence[TopicResult],
) -> tuple[TopicResult, ...]:
    """Lower the level of failed checks to `ok` if experiments have proven why their backend fails.

    With the proven change, the backend works without a repair of what the checks report.
    """
    proof_by_backend: dict[str, str] = {}
    for topic in topics:
        for finding in topic.findings:
            if finding.is_proven and finding.about:
                proof_by_backend[finding.about] = finding.proof
    results = []
    for topic in topics:
        findings = []
        for finding in topic.findings:
            if finding.is_proven:
                findings.append(finding)
            else:
                findings.append(_downgrade_failed_check(finding, proof_by_backend))
        results.append(topic._replace(findings=tuple(findings)))
    return tuple(results)


def _is_failed_computation(finding: Finding) -> bool:
    return finding.code.startswith("compute.") and finding.level is not Level.OK


def _downgrade_failed_check(
    finding: Finding, success_by_backend: Mapping[str, str]
) -> Finding:
    """Return the finding with the level `ok` if it is a failed check of a backend that computed.

    `success_by_backend` contains a clause about the successful computation for each backend that computed.
    """
    is_failed_check = (
        finding.code.startswith("checks.") and finding.level is Level.ERROR
    )
    if not is_failed_check or finding.about not in success_by_backend:
        return finding
    facts = {**finding.facts, "refuted": success_by_backend[finding.about]}
    return finding._replace(level=Level.OK, step="", facts=facts)


def _downgrade_framework_advice(finding: Finding) -> Finding:
    """Return the finding with the level `ok` if it advises to make a framework use a backend."""
    if finding.code not in ("frameworks.differs", "frameworks.fails"):
        return finding
    return finding._replace(level=Level.OK, step="")
