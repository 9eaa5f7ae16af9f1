"""Downgrade findings that a computation on the devices refutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accel_tools.doctor.records import Finding, Level, TopicResult
from accel_tools.doctor.topics.compute import COMPUTED

__all__ = ["drop_refuted"]


def drop_refuted(
    topics: Sequence[TopicResult], chosen: str | None
) -> tuple[TopicResult, ...]:
    """Return the topics with the level `ok` for each finding that the topic `compute` refutes.

    A plugin's failed check is refuted if the backend's devices computed correct results. The
    advice to make a framework use the backend `chosen` is refuted if a computation on this
    backend failed.
    """
    findings = [finding for topic in topics for finding in topic.findings]
    computed = {f.about: f.what for f in findings if f.code == COMPUTED}
    chosen_fails = any(
        _is_failed_computation(f) and f.about == chosen for f in findings
    )
    return tuple(
        topic._replace(
            findings=tuple(
                _downgrade(finding, computed, chosen_fails=chosen_fails)
                for finding in topic.findings
            )
        )
        for topic in topics
    )


def _is_failed_computation(finding: Finding) -> bool:
    return finding.code.startswith("compute.") and finding.level is not Level.OK


def _downgrade(
    finding: Finding, computed: Mapping[str, str], *, chosen_fails: bool
) -> Finding:
    is_failed_check = (
        finding.code.startswith("checks.") and finding.level is Level.ERROR
    )
    if is_failed_check and finding.about in computed:
        facts = {**finding.facts, "refuted": computed[finding.about]}
        return finding._replace(level=Level.OK, step="", facts=facts)
    is_advice = finding.code in ("frameworks.differs", "frameworks.fails")
    if is_advice and chosen_fails:
        return finding._replace(level=Level.OK, step="")
    return finding
