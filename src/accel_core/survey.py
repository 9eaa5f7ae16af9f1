"""Every candidate's verdict at once, for people who want to see more than the choice needs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from accel_core import isolation
from accel_core.choice import conflict, conflicts
from accel_core.discovery import Candidate, discover
from accel_core.probe import examine, probe
from accel_core.settings import Settings
from accel_core.verdict import Outcome, Status, Verdict, verdict

__all__ = ["survey"]


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
            return probe(candidate, settings, candidates, isolated=True)
        known = examine(candidate, settings)
        return verdict(candidate, known or Outcome(Status.NOT_PROBED, "installed, and not probed"))

    with ThreadPoolExecutor(max_workers=max(1, len(candidates))) as pool:
        try:
            return tuple(pool.map(judge, candidates))
        except BaseException:  # above all Ctrl-C, which the children, sessions of their own, do not hear
            isolation.end_all()
            raise
