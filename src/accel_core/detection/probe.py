"""A candidate to its verdict: what is known without importing anything, then the device.

Nothing is raised: every failure is a verdict with its reason, cause and next step.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from accel_core._support.torch_import import private_use1_is_free
from accel_core.backend import Backend
from accel_core.detection import builtin
from accel_core.detection.creation import installed_imports
from accel_core.detection.device import Group, ask_device, plugin_answer
from accel_core.detection.facts import examine
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded, Verdict, verdict
from accel_core.machine import devices
from accel_core.settings import Settings

if TYPE_CHECKING:
    from accel_core.detection.autoload import Spoiler

__all__ = ["Prober", "can_be_broken"]

_log = logging.getLogger(__name__)


class Prober:
    """The judge that probes; `isolated`: in child processes only, so that this process imports no torch.

    An isolated prober, and one that is strict, also looks into what is broken where a device is missing.
    """

    def __init__(self, settings: Settings, *, isolated: bool = False, autoload: bool = True) -> None:
        self._settings = settings
        self.isolated = isolated
        self._autoload = autoload
        #: What was probed, by the backend and the question: nothing is probed twice.
        self._known: dict[tuple[object, ...], Verdict] = {}

    def probe(
        self,
        candidate: Candidate | Unloaded,
        among: tuple[Candidate | Unloaded, ...],
        *,
        pinned: bool = False,
        isolated: bool = False,
    ) -> Verdict:
        """The verdict on `candidate`, beside the others `among` which it is judged.

        `pinned`: the user asked for this backend by name, so it may be usable without a device, as on a
        login node. `isolated`: this once, in a child process alone.
        """
        start = time.perf_counter()
        isolated = isolated or self.isolated
        which = (candidate.name, candidate.provenance, candidate.priority, isolated)
        at_rank, known = self._known.get((which, False)), self._known.get((which, pinned))
        if at_rank is not None and at_rank.usable:
            return at_rank
        if known is not None:
            return known
        group = Group(among)
        seen = devices.evidence(candidate.backend) if isinstance(candidate, Candidate) else None
        outcome, absence = examine(candidate, self._settings, seen, pinned=pinned)
        broken: Verdict | None = None
        if outcome is None:
            assert isinstance(candidate, Candidate)
            doubtful = absence is not None and not pinned
            outcome = counted = None
            if candidate.builtin:  # answers without importing anything, and needs no child for that
                outcome = plugin_answer(candidate, group)
            risky = isolated or doubtful or self._is_risky(candidate.backend, group.beside(candidate), pinned)
            if outcome is None and risky:
                from accel_core.detection.isolated import probe_isolated  # here, as most processes start none

                outcome = probe_isolated(candidate, group, self._settings.probe_timeout, pinned=pinned)
                lives = outcome.status is Status.USABLE or (pinned and outcome.status is Status.NO_DEVICE)
                if lives and not isolated:  # in this process too, but for a count that would start the device
                    counted = outcome if candidate.backend.in_torch.in_child == "count" else None
                    outcome = None
            if outcome is None:
                outcome = ask_device(candidate, group, pinned=pinned, counted=counted)
            if doubtful and (outcome.status is Status.NO_DEVICE or outcome.status.is_failure):
                outcome = absence  # the vendor counts none either, or fails as one does without its device
        assert outcome is not None
        if pinned and outcome.is_absence:
            why = absence or outcome  # what was seen without the vendor says more than its count
            outcome = Outcome(Status.USABLE, f"pinned, though {why.reason}", why.hint, 0)
        elif (self.isolated or self._settings.strict) and not pinned:
            broken = self._broken(candidate, outcome, among)
        found = verdict(candidate, outcome, seen, (time.perf_counter() - start) * 1e3, broken)
        _log.info("%s: %s, after %.1f ms. %s", found.name, found.status.words, found.ms, found.reason)
        self._known[which, pinned] = found
        return found

    def inspect(self, candidate: Candidate | Unloaded, otherwise: Outcome) -> Verdict:
        """The verdict without probing: what rules `candidate` out statically, else `otherwise`."""
        seen = devices.evidence(candidate.backend) if isinstance(candidate, Candidate) else None
        ruled_out, _ = examine(candidate, self._settings, seen)
        return verdict(candidate, ruled_out or otherwise, seen)

    def autoload(self, chosen: Candidate | None, *, fallback: bool) -> tuple[Spoiler, ...]:
        """Return what torch's autoload spoils; this takes seconds, so a program asks only in a fallback."""
        if not self._autoload or not (self.isolated or fallback) or not builtin.announced():
            return ()
        from accel_core.detection.autoload import spoilers  # here, as most processes have no use for it

        return spoilers(chosen.backend if chosen is not None else None, self._settings.probe_timeout)

    def _is_risky(self, backend: Backend, others: tuple[Backend, ...], pinned: bool) -> bool:
        """Whether a child process comes first: it is asked for, or this process could be spoilt."""
        if self._settings.isolated or backend.in_torch.in_child or builtin.loads_unclaimed(backend, others):
            return True
        return not pinned and self._takes_the_slot(backend, others)

    def _takes_the_slot(self, backend: Backend, others: tuple[Backend, ...]) -> bool:
        """Whether its import takes torch's one PrivateUse1 slot, for which another would be too late.

        A package that then counts no device, or fails, would leave this process to nobody.
        """
        if not backend.in_torch.private_use1 or not private_use1_is_free():
            return False
        rivals = [b for b in others if b.in_torch.private_use1 and installed_imports(b)]
        return bool(rivals or len(self._settings.pins) > 1 or builtin.unclaimed((*others, backend)))

    def _broken(
        self, candidate: Candidate | Unloaded, outcome: Outcome, among: tuple[Candidate | Unloaded, ...]
    ) -> Verdict | None:
        """Return what is broken besides a missing device: a child tries the backend as if it were pinned."""
        if outcome.status is not Status.NO_DEVICE or not can_be_broken(candidate):
            return None
        beyond = self.probe(candidate, among, pinned=True, isolated=True)
        # That it gave no answer in time is no news of the package.
        return beyond if beyond.status.is_failure and beyond.status is not Status.TIMED_OUT else None


def can_be_broken(candidate: Candidate | Unloaded) -> bool:
    """Whether a vendor's package is installed, which need not work."""
    return isinstance(candidate, Candidate) and installed_imports(candidate.backend) not in ([], ["torch"])
