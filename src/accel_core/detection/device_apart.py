"""A plugin and its device, asked in a child process, whose end, whatever it is, is an outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from accel_core._support import child
from accel_core.backend import ENTRY_POINT_GROUP, Provenance
from accel_core.detection import builtin, passing
from accel_core.detection.apart import ended, no_child
from accel_core.detection.device import Group, ask_device, report_to
from accel_core.detection.entry_points import find_entry_points, provenance
from accel_core.detection.loading import load
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded

__all__ = ["answer_in_child", "ask_child"]

_log = logging.getLogger(__name__)


def ask_child(candidate: Candidate, group: Group, timeout: float, *, pinned: bool) -> Outcome:
    """The plugin and the device in a child process, whose end, whatever it was, is an ordinary outcome."""
    job: dict[str, object] = {
        "candidate": passing.told(candidate),
        "others": [
            passing.told(c) for c in group.candidates if isinstance(c, Candidate) and c is not candidate
        ],
        "refused": [c.name for c in group.refused()],
        "pinned": pinned,
    }
    _log.info("try %s in a child process, for at most %g s", candidate, timeout)
    try:
        report = child.run(answer_in_child, job, timeout)
    except OSError as error:
        return no_child("probe it", error)
    if report.answer is not None:
        return passing.outcome(report.answer)
    mend = "raise ACCEL_PROBE_TIMEOUT" if report.timed_out else "reinstall the vendor's package"
    mend = report_to(candidate, report.stage) or mend
    return ended(report, timeout, "probed it", mend, candidate.name)


def answer_in_child(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: import the candidate's plugin, and no other, and ask it and its device."""
    builtin.on_step = stage
    candidate = passing.candidate(job["candidate"])
    if not candidate.builtin:
        candidate, failed = _found_again(candidate, stage)
        if failed is not None:
            return passing.told_outcome(failed)
    others = [
        other._replace(plugin=candidate.plugin) if other.provenance == candidate.provenance else other
        for other in map(passing.candidate, job["others"])
    ]
    blocked = Outcome(Status.BLOCKED)
    refused = [Unloaded(name, Provenance("", ""), blocked) for name in job["refused"]]
    group = Group.of([candidate, *others, *refused], importing=True)
    return passing.told_outcome(ask_device(candidate, group, pinned=bool(job["pinned"]), stage=stage))


def _found_again(candidate: Candidate, stage: Callable[[str], None]) -> tuple[Candidate, Outcome | None]:
    """The same candidate with its plugin loaded; or why it is not found here."""
    missing = Outcome(Status.BROKEN, "the probing process did not find the plugin")
    installed = find_entry_points(ENTRY_POINT_GROUP)
    entry_point = next((e for e in installed if provenance(e) == candidate.provenance), None)
    loaded = load(entry_point, stage) if entry_point is not None else ()
    for found in loaded:
        if isinstance(found, Unloaded):
            return candidate, found.outcome
        if (found.name, found.priority) == (candidate.name, candidate.priority):
            return found, None
    return candidate, missing
