"""Take back findings that the computation on the devices refutes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from accel_tools.doctor.records import Examined, Finding, Level
from accel_tools.doctor.topics.compute import COMPUTED

__all__ = ["without_refuted"]


def without_refuted(
    topics: Sequence[Examined], chosen: str | None
) -> tuple[Examined, ...]:
    """Return the topics; findings that the computation refutes are told as observations.

    A plugin's check whose result is an error says that its devices do not work. Advice to
    make another framework use the `chosen` backend says that they do.
    """
    findings = [finding for topic in topics for finding in topic.findings]
    computed = {f.about: f.what for f in findings if f.code == COMPUTED}
    failing = {
        f.about
        for f in findings
        if f.code.startswith("compute.") and f.level is not Level.OK
    }
    return tuple(
        topic._replace(
            findings=tuple(_judged(topic.findings, computed, chosen in failing))
        )
        for topic in topics
    )


def _judged(
    findings: Iterable[Finding], computed: dict[str, str], chosen_fails: bool
) -> Iterable[Finding]:
    for finding in findings:
        is_check = finding.code.startswith("checks.") and finding.level is Level.ERROR
        is_advice = finding.code in ("frameworks.differs", "frameworks.fails")
        if is_check and finding.about in computed:
            facts = {**finding.facts, "refuted": computed[finding.about]}
            yield finding._replace(level=Level.OK, step="", facts=facts)
        elif is_advice and chosen_fails:
            yield finding._replace(level=Level.OK, step="")
        else:
            yield finding
