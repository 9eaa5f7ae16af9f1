"""Add what experiments prove to the findings of a visit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from accel_tools.doctor.experiments.cases import Case, Proof, investigated
from accel_tools.doctor.records import Examined, Finding, Level

#: Findings that say of a backend that it does not work, in the words of the topics.
_ABOUT_A_BACKEND = ("compute.", "candidates.", "visible-devices.", "machine.no-nodes")


def with_proofs(
    cases: Sequence[Case],
    topics: tuple[Examined, ...],
    seconds: float,
    show: Callable[[str], None],
) -> tuple[Examined, ...]:
    """Return the topics, with a proof in the finding on each case in which something is wrong.

    All experiments together take `seconds`; `show` is called with the words of each.
    """
    end = time.monotonic() + seconds
    known: dict[str, Proof] = {}
    for case in cases:
        if not case.is_wrong:
            continue
        # What fails alike for several backends has one cause.
        key = case.outcome.error if case.about == "" else f"{case.about} {case.outcome}"
        if key not in known:
            known[key] = investigated(case, end, show)
        topics = _with_proof(case, known[key], topics)
    return topics


def _with_proof(
    case: Case, proof: Proof, topics: tuple[Examined, ...]
) -> tuple[Examined, ...]:
    found = [finding for topic in topics for finding in topic.findings]
    concerned = [finding for finding in found if _is_about(finding, case)]
    if not concerned:
        return _with_finding(_new_finding(case, proof), topics)
    first = concerned[0]
    replaced = first._replace(proof=proof.text)
    merged: list[Finding] = []
    if proof.step:
        merged = concerned[1:]
        also = {f"also, from {f.code}": f.what for f in merged}
        replaced = replaced._replace(
            step=proof.step,
            facts={**first.facts, **also},
            level=max((f.level for f in concerned), key=list(Level).index),
        )
    return tuple(
        topic._replace(findings=tuple(_replaced(topic, first, replaced, merged)))
        for topic in topics
    )


def _replaced(
    topic: Examined, first: Finding, replaced: Finding, merged: Sequence[Finding]
) -> Iterator[Finding]:
    for finding in topic.findings:
        if finding is first:
            yield replaced
        elif not any(finding is other for other in merged):
            yield finding


def _is_about(finding: Finding, case: Case) -> bool:
    """Whether the finding reports what the case is about."""
    if finding.level is Level.OK:
        return False
    failure = case.outcome.failure
    if failure and failure in (finding.facts.get("root cause"), finding.what):
        return True
    if failure and failure in finding.what:
        return True
    is_of_backend = finding.code.startswith(_ABOUT_A_BACKEND)
    return bool(case.about) and finding.about == case.about and is_of_backend


def _new_finding(case: Case, proof: Proof) -> Finding:
    """Return the finding on missing devices, which no topic has reported."""
    count = case.outcome.count or 0
    what = f"{count} of {case.expected} devices can be counted"
    return Finding(
        Level.WARNING, "compute.missing", what, proof.step, case.about, proof=proof.text
    )


def _with_finding(
    finding: Finding, topics: tuple[Examined, ...]
) -> tuple[Examined, ...]:
    return tuple(
        topic._replace(findings=(*topic.findings, finding))
        if topic.name == "compute"
        else topic
        for topic in topics
    )
