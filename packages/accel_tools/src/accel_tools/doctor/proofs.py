"""Add what experiments prove to the findings of a visit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from accel_tools.doctor.causes import TORCH_FAILS
from accel_tools.doctor.experiments.cases import Case, Goal, Proof, investigated
from accel_tools.doctor.records import Examined, Finding, Level
from accel_tools.doctor.topics.compute import missing

#: Findings that say of a backend that devices are missing.
_ON_DEVICES = (
    "visible-devices.",
    "candidates.no-device",
    "candidates.settings",
    "compute.missing",
)


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
        # What fails alike for several backends has one cause.
        key = f"{case.about} {case.goal} {case.outcome.failure}"
        if key not in known:
            known[key] = investigated(case, end, show)
        topics = _with_proof(case, known[key], topics)
    return topics


def _with_proof(
    case: Case, proof: Proof, topics: tuple[Examined, ...]
) -> tuple[Examined, ...]:
    found = [finding for topic in topics for finding in topic.findings]
    concerned = [finding for finding in found if _is_about(finding, case)]
    if not concerned and case.goal is Goal.COUNT:
        return _with_finding(_new_finding(case, proof), topics)
    if not concerned:
        return topics
    first = concerned[0]
    tried = {"changes without effect": proof.tried} if proof.tried else {}
    facts = {**first.facts, **tried}
    replaced = first._replace(proof=proof.text, facts=facts)
    merged: list[Finding] = []
    if proof.step:
        merged = concerned[1:]
        also = {f"also, from {f.code}": f.what for f in merged}
        replaced = replaced._replace(
            step=proof.step,
            facts={**facts, **also},
            level=max((f.level for f in concerned), key=list(Level).index),
        )
    left = (topic.without(merged) for topic in topics)
    return tuple(_with_replaced(topic, first, replaced) for topic in left)


def _with_replaced(topic: Examined, first: Finding, replaced: Finding) -> Examined:
    findings = tuple(replaced if f is first else f for f in topic.findings)
    return topic._replace(findings=findings)


def _is_about(finding: Finding, case: Case) -> bool:
    """Whether the finding reports what the case is about."""
    if finding.level is Level.OK:
        return False
    if case.goal is Goal.COUNT:
        is_of_backend = finding.about == case.about
        return is_of_backend and finding.code.startswith(_ON_DEVICES)
    is_of_torch = case.goal is Goal.IMPORT and not case.about
    if is_of_torch and finding.code in TORCH_FAILS:
        return True
    failure = case.outcome.failure
    return failure == finding.facts.get("root cause") or failure in finding.what


def _new_finding(case: Case, proof: Proof) -> Finding:
    """Return the finding on missing devices, which no topic has reported."""
    found = missing(case.about, case.outcome.count or 0, case.expected or 0)
    return found._replace(step=proof.step, proof=proof.text)


def _with_finding(
    finding: Finding, topics: tuple[Examined, ...]
) -> tuple[Examined, ...]:
    return tuple(
        topic._replace(findings=(*topic.findings, finding))
        if topic.name == "compute"
        else topic
        for topic in topics
    )
