"""Merge the findings of several topics that have the same cause into one finding with one remedy.

If a vendor package cannot be loaded, the probe of its backend, torch's autoload and the plugin's checks all
report the failure, each with a different remedy.
"""

from __future__ import annotations

from collections.abc import Sequence

from accel_tools.doctor.records import Finding, Level, TopicResult, worst_level

__all__ = ["TORCH_IMPORT_CODES", "merge_by_cause"]

#: The codes of the findings about a failed import of torch. Two topics import torch, and their errors may
#: name different files.
TORCH_IMPORT_CODES = {"candidates.torch", "compute.import"}


def merge_by_cause(topics: Sequence[TopicResult]) -> tuple[TopicResult, ...]:
    """Merge findings that have the same cause, and return the topics' results.

    A finding is merged into the first finding with the same cause. Two findings have the same cause if they
    report the same root cause, or the same remedy for the same backend. The text of a merged finding is
    kept in the facts of the first finding.
    """
    # Findings are compared by identity, because two of them may have the same text.
    merged_by_id: dict[int, Finding] = {}
    removed: list[Finding] = []
    remaining = _warnings_and_errors(topics)
    while remaining:
        first, *later = remaining
        duplicates, others = [], []
        for finding in later:
            if _have_same_cause(first, finding):
                duplicates.append(finding)
            else:
                others.append(finding)
        merged_by_id[id(first)] = _merge_duplicates(first, duplicates)
        removed += duplicates
        remaining = others
    results = []
    for topic in topics:
        result = topic.without_findings(removed)
        findings = []
        for finding in result.findings:
            merged = merged_by_id.get(id(finding), finding)
            findings.append(merged)
        results.append(result._replace(findings=tuple(findings)))
    return tuple(results)


def _warnings_and_errors(topics: Sequence[TopicResult]) -> list[Finding]:
    findings = [finding for topic in topics for finding in topic.findings]
    return [finding for finding in findings if finding.level is not Level.OK]


# --- Whether two findings have one cause ---------------------------------------------


def _have_same_cause(first: Finding, later: Finding) -> bool:
    if _have_same_root_cause(first, later) or _both_fail_to_import_torch(first, later):
        return True
    are_about_same_backend = first.about != "" and first.about == later.about
    if not are_about_same_backend:
        return False
    # Each distribution that declares the backend has a finding about the conflict.
    if first.code == later.code == "candidates.conflict":
        return True
    # Failures with the same remedy have the same cause.
    is_step_included = later.step != "" and later.step in first.step
    return is_step_included or _is_explained_by_check(first, later)


def _have_same_root_cause(first: Finding, later: Finding) -> bool:
    return first.cause != "" and first.cause == later.cause


def _both_fail_to_import_torch(first: Finding, later: Finding) -> bool:
    are_about_backend = first.about != "" or later.about != ""
    return {first.code, later.code} == TORCH_IMPORT_CODES and not are_about_backend


def _is_explained_by_check(first: Finding, later: Finding) -> bool:
    """Return whether `first` reports a missing device, and `later` is a failed check of a plugin."""
    is_device_missing = first.code == "candidates.no-device" and not first.step
    is_failed_check = later.code.startswith("checks.") and later.level is Level.ERROR
    return is_device_missing and is_failed_check


# --- One finding of several ----------------------------------------------------------


def _merge_duplicates(first: Finding, duplicates: Sequence[Finding]) -> Finding:
    """Merge `duplicates` into the finding `first`, and return the result.

    The result has the most serious level of all findings. If one of the duplicates is from a plugin's
    check, the text of the check is used, because a check is closest to the cause.
    """
    if not duplicates:
        return first
    facts = dict(first.facts)
    for finding in duplicates:
        text = finding.text
        if finding.step:
            text = f"{text}; {finding.step}"
        facts[f"also, from {finding.code}"] = text
    merged = first._replace(
        level=worst_level(finding.level for finding in (first, *duplicates)),
        facts=facts,
    )
    if first.code == "candidates.conflict":
        return _merge_conflict(merged, [first, *duplicates])
    for finding in duplicates:
        # A plugin's check is closest to the cause.
        if finding.code.startswith("checks."):
            return _use_text_of_check(merged, finding)
    return merged


def _merge_conflict(merged: Finding, conflicting: Sequence[Finding]) -> Finding:
    """Return `merged` with the names of all distributions that declare the same backend."""
    backend = merged.about
    distributions = [finding.facts["distribution"] for finding in conflicting]
    pins = [finding.facts["pin"] for finding in conflicting]
    what = f"{' and '.join(distributions)} declare {backend}"
    step = f"export DS_ACCELERATOR={', or '.join(pins)}"
    return merged._replace(what=what, details="", shows_cause=False, step=step)


def _use_text_of_check(merged: Finding, check: Finding) -> Finding:
    """Return `merged` with the text of a plugin's check, and with its step if `merged` has none."""
    what = check.text
    missing_device = merged.facts.get("missing device")
    if missing_device:
        what = f"{check.text}, and this machine has no {missing_device}"
    facts = {"error": merged.text, **merged.facts}
    step = merged.step or check.step
    return merged._replace(
        what=what, details="", shows_cause=False, step=step, facts=facts
    )
