"""Every candidate's verdict at once, and the choice that they come to, for people.

This process imports neither torch nor a vendor: each candidate is probed in a child process.
"""

from __future__ import annotations

from typing import NamedTuple

from accel_core.detection.discovery import Load, find
from accel_core.detection.isolated import IsolatedLoader
from accel_core.detection.probe import Prober, can_be_broken
from accel_core.detection.records import Candidate, Choice, Outcome, Status, Unloaded, Verdict, verdict
from accel_core.detection.select import conflict, conflicts, select
from accel_core.machine import host
from accel_core.machine.vendors import missing_plugins
from accel_core.settings import Settings

__all__ = ["Survey", "survey"]


class Survey(NamedTuple):
    """Every candidate with its verdict, and the choice."""

    #: The verdict on every candidate, in rank order; it does not depend on `DS_ACCELERATOR`.
    verdicts: tuple[Verdict, ...]
    #: What `get_accelerator()` comes to; `None` where nothing was probed.
    choice: Choice | None
    #: Hardware that is present while no plugin for it is installed, each with the command to run.
    missing_plugins: tuple[str, ...]
    #: What the verdicts are on, one by one, in the same order.
    candidates: tuple[Candidate | Unloaded, ...]
    #: What the one pin of the settings means; empty where there is none, or several.
    pinned: tuple[Candidate | Unloaded, ...]


def survey(
    settings: Settings, *, probing: bool = True, autoload: bool = True, load: Load | None = None
) -> Survey:
    """Judge every candidate, as many at once as there are cores, each under the settings' deadline.

    Without `probing` no process is started but the one that reads the plugins' declarations: who passes the
    steps that import nothing is `not_probed`, and what would be chosen is not known. Without `autoload`
    nobody tries what torch's autoload spoils, which takes a process of its own after all others. `load` has
    read declarations before.
    """
    load = load or IsolatedLoader(settings.probe_timeout)
    judge = Prober(settings, isolated=True, autoload=autoload)
    candidates = find(None, settings, load)
    claims = conflicts(candidates, settings)

    def without_probing(candidate: Candidate | Unloaded) -> Verdict:
        clash = conflict(candidate, claims)
        if clash is not None:
            return verdict(candidate, clash)
        return judge.inspect(candidate, Outcome(Status.NOT_PROBED, "installed, and not probed"))

    verdicts = {candidate: without_probing(candidate) for candidate in candidates}
    missing = missing_plugins(c.name for c in candidates)
    pinned = find(settings.pins[0], settings, load) if len(settings.pins) == 1 else ()
    if not probing:
        return Survey(tuple(verdicts.values()), None, missing, candidates, pinned)
    unsettled = [candidate for candidate, first in verdicts.items() if _says_more(candidate, first)]
    if unsettled:
        from accel_core._support import child  # here, as on most machines nothing is left to probe

        probed = child.each(lambda c: judge.probe(c, candidates), unsettled, host.usable_cores())
        verdicts |= zip(unsettled, probed, strict=True)
    choice = select(
        settings, find=lambda pin: candidates if pin is None else find(pin, settings, load), judge=judge
    )
    return Survey(tuple(verdicts.values()), choice, missing, candidates, pinned)


def _says_more(candidate: Candidate | Unloaded, first: Verdict) -> bool:
    """Whether probing says more of a candidate than the verdict that was had without."""
    doubtful = first.status is Status.NO_DEVICE and can_be_broken(candidate)
    return doubtful or first.status is Status.NOT_PROBED
