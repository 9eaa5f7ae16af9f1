"""Every candidate's verdict at once, for people who want to see more than the choice needs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from accel_core._support import child as isolation
from accel_core.detection.creation import installed_imports
from accel_core.detection.discovery import Candidate, discover
from accel_core.detection.probe import examine, probe
from accel_core.detection.records import Outcome, Status, Verdict, verdict
from accel_core.detection.select import conflict, conflicts
from accel_core.settings import Settings

__all__ = ["survey"]


def _in_full(candidate: Candidate, settings: Settings, candidates: tuple[Candidate, ...]) -> Verdict:
    """The verdict, and what else is wrong: without a device a broken vendor package would stay unseen.

    Absent hardware remains the verdict, for no mended package changes that.
    """
    found = probe(candidate, settings, candidates, isolated=True)
    backend = candidate.backend
    if (
        found.status is not Status.NO_DEVICE
        or backend is None
        or installed_imports(backend) in ([], ["torch"])
    ):
        return found
    beyond = probe(candidate, settings, candidates, pinned=True, isolated=True)
    if not beyond.status.is_failure:
        return found
    reason = f"{found.reason}; besides, {beyond.reason}"
    return found._replace(reason=reason, hint=beyond.hint, cause=beyond.cause, ms=found.ms + beyond.ms)


def survey(settings: Settings, *, probing: bool = True) -> tuple[Verdict, ...]:
    """The verdict on every candidate, in rank order; this process imports neither torch nor a vendor.

    `probing`: each that passes the steps which import nothing is probed in a child process, all of them
    at once and each under the settings' deadline. Without it such a candidate is `not_probed`.
    """
    candidates = discover()
    claims = conflicts(candidates, settings)

    def judge(candidate: Candidate) -> Verdict:
        clash = conflict(candidate, claims)
        if clash is not None:
            return verdict(candidate, clash)
        if probing:
            return _in_full(candidate, settings, candidates)
        known = examine(candidate, settings)
        return verdict(candidate, known or Outcome(Status.NOT_PROBED, "installed, and not probed"))

    with ThreadPoolExecutor(max_workers=max(1, len(candidates))) as pool:
        try:
            return tuple(pool.map(judge, candidates))
        except BaseException:  # above all Ctrl-C, which the children, sessions of their own, do not hear
            isolation.end_all()
            raise
