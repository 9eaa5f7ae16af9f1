"""Merge findings of several topics that have one cause, so that each cause has one finding and one remedy.

If a vendor's package cannot be loaded, its backend's probe, torch's autoload and its plugin's own checks all
report it, each with a remedy of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accel_tools.doctor.records import Examined, Finding, Level

__all__ = ["TORCH_FAILS", "by_cause"]

#: Two topics import torch; where both fail, their errors may name different files.
TORCH_FAILS = {"candidates.torch", "compute.import"}


def by_cause(topics: Sequence[Examined]) -> tuple[Examined, ...]:
    """Return the topics; a finding with the cause or remedy of an earlier finding is merged into that one.

    The text of the merged finding is kept in the facts.
    """
    wrong = [f for topic in topics for f in topic.findings if f.level is not Level.OK]
    merged: dict[int, Finding] = {}
    moved: list[Finding] = []
    for place, first in enumerate(wrong):
        if _is_in(moved, first):
            continue
        same = [
            f for f in wrong[place + 1 :] if not _is_in(moved, f) and _is_same(first, f)
        ]
        moved += same
        merged[id(first)] = _merged(first, same)
    return tuple(_with(topic.without(moved), merged) for topic in topics)


def _is_in(findings: Sequence[Finding], finding: Finding) -> bool:
    return any(finding is other for other in findings)


def _with(topic: Examined, merged: Mapping[int, Finding]) -> Examined:
    findings = tuple(merged.get(id(finding), finding) for finding in topic.findings)
    return topic._replace(findings=findings)


def _is_same(first: Finding, other: Finding) -> bool:
    """Whether both have one root cause, or one backend and one remedy."""
    cause = first.facts.get("root cause", "")
    if cause and (
        cause == other.facts.get("root cause")
        or cause in other.what
        or (first.about and f"for the same reason as {first.about}" in other.what)
    ):
        return True
    if {first.code, other.code} == TORCH_FAILS and not (first.about or other.about):
        return True
    alike = bool(first.about) and first.about == other.about
    counts_none = first.code == "candidates.no-device" and not first.step
    is_why = other.code.startswith("checks.") and other.level is Level.ERROR
    if alike and counts_none and is_why:
        return True
    return alike and (
        first.code == other.code == "candidates.conflict"
        or (bool(other.step) and other.step in first.step)
    )


def _merged(first: Finding, same: Sequence[Finding]) -> Finding:
    """The first, as serious as the worst; in the words of a plugin's own check, which knows its cause."""
    told = {f"also, from {f.code}": f"{f.what}; {f.step}".rstrip("; ") for f in same}
    level = max((f.level for f in (first, *same)), key=list(Level).index)
    what, facts = first.what, {**first.facts, **told}
    check = next((f for f in same if f.code.startswith("checks.")), None)
    if check is not None:
        _, lacking, device = what.removesuffix(" found").rpartition("; and no ")
        facts = {"error": what, **facts}
        what = f"{check.what}, and no {device} is here" if lacking else check.what
    if first.code == "candidates.conflict" and same:
        sources = [f.facts["distribution"] for f in (first, *same)]
        ways = [f"{first.about}@{source.partition(' ')[0]}" for source in sources]
        what = f"{' and '.join(sources)} declare {first.about}"
        step = f"export DS_ACCELERATOR={', or '.join(ways)}"
        return Finding(level, first.code, what, step, first.about, facts)
    step = first.step or (check.step if check is not None else "")
    return first._replace(level=level, what=what, step=step, facts=facts)
