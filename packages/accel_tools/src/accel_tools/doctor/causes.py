"""Merge findings of several topics that have the same cause into one finding with one remedy.

If a vendor package cannot be loaded, the probe of its backend, torch's autoload and the
plugin's checks all report the failure, each with a different remedy.
"""

from __future__ import annotations

from collections.abc import Sequence

from accel_tools.doctor.records import Finding, Level, TopicResult, worst_level

__all__ = ["TORCH_FAILS", "merge_by_cause"]

#: The codes of the findings on a failed import of torch. Two topics import torch, and their errors may
#: name different files.
TORCH_FAILS = {"candidates.torch", "compute.import"}


def merge_by_cause(topics: Sequence[TopicResult]) -> tuple[TopicResult, ...]:
    """Return the topics with each finding merged into an earlier finding with the same cause.

    Two findings have the same cause if they report the same root cause, or the same
    remedy for the same backend. The text of a merged finding is kept in the facts of the
    earlier finding.
    """
    merged: dict[int, Finding] = {}
    moved: list[Finding] = []
    remaining = _faults(topics)
    while remaining:
        first, *others = remaining
        duplicates = [other for other in others if _have_same_cause(first, other)]
        merged[id(first)] = _merge(first, duplicates)
        moved += duplicates
        remaining = [other for other in others if not _contains(duplicates, other)]
    results = []
    for topic in topics:
        kept = topic.without(moved)
        findings = (merged.get(id(finding), finding) for finding in kept.findings)
        results.append(kept._replace(findings=tuple(findings)))
    return tuple(results)


def _faults(topics: Sequence[TopicResult]) -> list[Finding]:
    findings = [finding for topic in topics for finding in topic.findings]
    return [finding for finding in findings if finding.level is not Level.OK]


def _contains(findings: Sequence[Finding], finding: Finding) -> bool:
    """Return whether the object `finding` is in the list; an equal finding does not count."""
    return any(finding is other for other in findings)


# --- Whether two findings have one cause ---------------------------------------------


def _have_same_cause(first: Finding, other: Finding) -> bool:
    if _have_same_root_cause(first, other) or _both_fail_in_torch(first, other):
        return True
    if not first.about or first.about != other.about:
        return False
    return (
        _is_explained_by_check(first, other)
        or first.code == other.code == "candidates.conflict"
        or (other.step != "" and other.step in first.step)
    )


def _have_same_root_cause(first: Finding, other: Finding) -> bool:
    cause = first.facts.get("root cause", "")
    if not cause:
        return False
    if cause == other.facts.get("root cause") or cause in other.what:
        return True
    same_reason = f"for the same reason as {first.about}"
    return first.about != "" and same_reason in other.what


def _both_fail_in_torch(first: Finding, other: Finding) -> bool:
    has_backend = bool(first.about or other.about)
    return {first.code, other.code} == TORCH_FAILS and not has_backend


def _is_explained_by_check(first: Finding, other: Finding) -> bool:
    """Return whether `first` reports that there is no device, and `other` is a check with the reason."""
    counts_none = first.code == "candidates.no-device" and not first.step
    is_failed_check = other.code.startswith("checks.") and other.level is Level.ERROR
    return counts_none and is_failed_check


# --- One finding of several ----------------------------------------------------------


def _merge(first: Finding, duplicates: Sequence[Finding]) -> Finding:
    """Merge findings into one finding, which has the most serious level of the findings.

    If one of the findings is from a plugin's check, its text is used, because a check is
    closest to the cause.
    """
    if not duplicates:
        return first
    facts = dict(first.facts)
    for finding in duplicates:
        text = f"{finding.what}; {finding.step}".rstrip("; ")
        facts[f"also, from {finding.code}"] = text
    merged = first._replace(
        level=worst_level(finding.level for finding in (first, *duplicates)),
        facts=facts,
    )
    if first.code == "candidates.conflict":
        return _merge_conflict(merged, [first, *duplicates])
    for finding in duplicates:
        if finding.code.startswith("checks."):
            return _with_check(merged, finding)
    return merged


def _merge_conflict(merged: Finding, conflicting: Sequence[Finding]) -> Finding:
    """Return `merged` with the names of all distributions that declare the same backend."""
    sources = [finding.facts["distribution"] for finding in conflicting]
    pins = [f"{merged.about}@{source.partition(' ')[0]}" for source in sources]
    what = f"{' and '.join(sources)} declare {merged.about}"
    step = f"export DS_ACCELERATOR={', or '.join(pins)}"
    return merged._replace(what=what, step=step)


def _with_check(merged: Finding, check: Finding) -> Finding:
    """Return `merged` with the text of a plugin's check, and with its step if `merged` has none."""
    what = check.what
    _, no_device, device = merged.what.removesuffix(" found").rpartition("; and no ")
    if no_device:
        what = f"{check.what}, and this machine has no {device}"
    facts = {"error": merged.what, **merged.facts}
    return merged._replace(what=what, step=merged.step or check.step, facts=facts)
