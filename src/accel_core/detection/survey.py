"""Every candidate's verdict at once, and the choice that they come to, for people.

This process imports neither torch nor a vendor: each candidate is probed in a child process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from accel_core.detection.apart import Apart
from accel_core.detection.autoload import Spoiler
from accel_core.detection.choose import Prober, recorded
from accel_core.detection.discovery import discover, find
from accel_core.detection.loading import Load
from accel_core.detection.probe import Group, can_be_broken, in_full, inspect, probe
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


class _LookUp:
    """A judge that looks verdicts up. A pinned backend needs no device, so that it must be tried anew."""

    def __init__(self, settings: Settings, verdicts: tuple[Verdict, ...], *, autoload: bool) -> None:
        self._verdicts = verdicts
        self._autoload = autoload
        self._settings = settings
        self._prober = Prober(settings, isolated=True)

    def probe(
        self, candidate: Candidate | Unloaded, among: tuple[Candidate | Unloaded, ...], *, pinned: bool
    ) -> Verdict:
        known = next((v for v in self._verdicts if v.is_about(candidate)), None)
        # What is usable at rank is usable when pinned; the reverse, and a rival's claim, only trying tells.
        if known is None or (not known.usable and (pinned or known.status is Status.CONFLICT)):
            return self._prober.probe(candidate, among, pinned=pinned)
        return known

    def in_full(
        self,
        candidate: Candidate | Unloaded,  # noqa: ARG002 - it was judged in full before
        found: Verdict,
        among: tuple[Candidate | Unloaded, ...],  # noqa: ARG002
    ) -> Verdict:
        return found

    def can_work(self, candidate: Candidate | Unloaded, among: tuple[Candidate | Unloaded, ...]) -> bool:
        return self.probe(candidate, among, pinned=False).usable

    def autoload(self, chosen: Candidate | None, *, fallback: bool) -> tuple[Spoiler, ...]:
        return self._prober.autoload(chosen, fallback=fallback) if self._autoload else ()

    def inspect(self, candidate: Candidate | Unloaded, otherwise: Outcome) -> Verdict:
        return inspect(candidate, self._settings, otherwise)


def survey(
    settings: Settings,
    environ: Mapping[str, str] | None = None,
    *,
    probing: bool = True,
    autoload: bool = True,
    load: Load | None = None,
) -> Survey:
    """Judge every candidate, as many at once as there are cores, each under the settings' deadline.

    Without `probing` no process is started but the one that reads the plugins' declarations: who passes the
    steps that import nothing is `not_probed`, and what would be chosen is not known. Without `autoload`
    nobody tries what torch's autoload spoils, which takes a process of its own after all others. `load` has
    read declarations before.
    """
    start = time.perf_counter()
    load = load or Apart(settings.probe_timeout)
    group = Group.of(discover(settings, load))
    claims = conflicts(group.candidates, settings)

    def without_probing(candidate: Candidate | Unloaded) -> Verdict:
        clash = conflict(candidate, claims)
        if clash is not None:
            return verdict(candidate, clash)
        return inspect(candidate, settings, Outcome(Status.NOT_PROBED, "installed, and not probed"))

    verdicts = tuple(map(without_probing, group.candidates))
    if probing:
        verdicts = _probed(verdicts, settings, group)
    missing = missing_plugins(c.name for c in group.candidates)
    pinned = find(settings.pins[0], settings, load) if len(settings.pins) == 1 else ()
    if not probing:
        return Survey(verdicts, None, missing, group.candidates, pinned)
    choice = select(
        settings,
        lambda pin: group.candidates if pin is None else find(pin, settings, load),
        _LookUp(settings, verdicts, autoload=autoload),
        lambda _: missing,
    )
    env = os.environ if environ is None else environ
    choice = recorded(choice, env, (time.perf_counter() - start) * 1e3)
    return Survey(verdicts, choice, missing, group.candidates, pinned)


def _probed(verdicts: tuple[Verdict, ...], settings: Settings, group: Group) -> tuple[Verdict, ...]:
    """The verdicts, those replaced that probing says more of."""
    pairs = list(zip(group.candidates, verdicts, strict=True))
    unsettled = [candidate for candidate, first in pairs if _says_more(candidate, first)]
    if not unsettled:
        return verdicts
    from accel_core._support import child  # here, as on most machines nothing is left to probe

    def judged(candidate: Candidate | Unloaded) -> Verdict:
        return in_full(candidate, probe(candidate, settings, group, isolated=True), settings, group)

    probed = child.each(judged, unsettled, host.usable_cores())
    later = {id(candidate): verdict for candidate, verdict in zip(unsettled, probed, strict=True)}
    return tuple(later.get(id(candidate), first) for candidate, first in pairs)


def _says_more(candidate: Candidate | Unloaded, first: Verdict) -> bool:
    """Whether probing says more of a candidate than the verdict that was had without."""
    return first.status is Status.NOT_PROBED or (
        first.status is Status.NO_DEVICE and can_be_broken(candidate)
    )
