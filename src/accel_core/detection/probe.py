"""A candidate to its verdict: what is known without importing anything, then the device.

Nothing is raised: every failure is a verdict with its reason, cause and next step.
"""

from __future__ import annotations

import functools
import logging
import time

from accel_core.detection import builtin
from accel_core.detection.creation import installed_imports, private_use1_is_free
from accel_core.detection.device import Group, ask_device, plugin_answer
from accel_core.detection.facts import examine, is_absence
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded, Verdict, after, verdict
from accel_core.detection.trying import PROBING, Note
from accel_core.machine import devices
from accel_core.settings import Settings

__all__ = ["Group", "can_be_broken", "in_full", "inspect", "probe"]

_log = logging.getLogger(__name__)


def inspect(candidate: Candidate | Unloaded, settings: Settings, otherwise: Outcome) -> Verdict:
    """The verdict without probing: what rules `candidate` out statically, else `otherwise`."""
    evidence = _evidence(candidate)
    ruled_out, _ = examine(candidate, settings, evidence)
    if ruled_out is not None:
        _log.info("%s: %s. %s", candidate.name, ruled_out.status.words, ruled_out.reason)
    return verdict(candidate, ruled_out or otherwise, evidence)


def probe(
    candidate: Candidate | Unloaded,
    settings: Settings,
    group: Group,
    *,
    pinned: bool = False,
    isolated: bool = False,
    note: Note | None = None,
) -> Verdict:
    """The verdict on one candidate; never raises what a plugin or vendor raises.

    `pinned`: the user asked for this backend by name, so it may be usable without a device, as on a
    login node. `isolated`: the device in a child process, and only there, so that this process does not
    import torch. Where the settings or the declaration ask for isolation, or `note` tells of an earlier
    process that died of it, the child comes first and this process follows only when the child lived.
    """
    start = time.perf_counter()
    evidence = _evidence(candidate)
    outcome, absence = examine(candidate, settings, evidence, pinned=pinned)
    if outcome is None:
        assert isinstance(candidate, Candidate)
        doubtful = absence is not None and not pinned
        outcome = _ask(
            candidate, settings, group, pinned=pinned, isolated=isolated, doubtful=doubtful, note=note
        )
        if doubtful and (outcome.status is Status.NO_DEVICE or outcome.status.is_failure):
            outcome = absence  # the vendor counts none either, or fails as one does without its device
    assert outcome is not None
    if pinned and is_absence(outcome):
        why = absence or outcome  # what was seen without the vendor says more than its count
        outcome = Outcome(Status.USABLE, f"pinned, though {why.reason}", why.hint, 0)
    found = verdict(candidate, outcome, evidence, (time.perf_counter() - start) * 1e3)
    _log.info("%s: %s, after %.1f ms. %s", found.name, found.status.words, found.ms, found.reason)
    return found


def in_full(candidate: Candidate | Unloaded, first: Verdict, settings: Settings, group: Group) -> Verdict:
    """The verdict with what else is wrong: without a device a broken vendor package would stay unseen.

    Absent hardware remains the verdict, for no mended package changes that. A child process tries it.
    """
    if first.status is not Status.NO_DEVICE or not can_be_broken(candidate):
        return first
    beyond = probe(candidate, settings, group, pinned=True, isolated=True)
    if not beyond.status.is_failure:
        return first
    return first._replace(
        reason=f"{first.reason}; besides, {beyond.reason}",
        hint=beyond.hint,
        cause=beyond.cause,
        where=beyond.where,
        ms=first.ms + beyond.ms,
        broken=True,
    )


def can_be_broken(candidate: Candidate | Unloaded) -> bool:
    """Whether a vendor's package is installed, which need not work."""
    return isinstance(candidate, Candidate) and installed_imports(candidate.backend) not in ([], ["torch"])


def _evidence(candidate: Candidate | Unloaded) -> devices.Evidence | None:
    return devices.evidence(candidate.backend) if isinstance(candidate, Candidate) else None


def _ask(
    candidate: Candidate,
    settings: Settings,
    group: Group,
    *,
    pinned: bool,
    isolated: bool,
    doubtful: bool,
    note: Note | None,
) -> Outcome:
    """The plugin and the device, here or in a child process first.

    A child comes first too where the device is doubtful: some vendors' packages end the process without it.
    """
    # Our own backends answer without importing anything, and need no child for that.
    if candidate.builtin and (answer := plugin_answer(candidate, group)) is not None:
        return answer
    untried = candidate.builtin and builtin.loads_unclaimed(candidate.backend, group.beside(candidate))
    untried = untried or (not pinned and _takes_the_slot(candidate, settings, group))
    untried = untried or candidate.backend.isolated_probe or candidate.backend.count_starts_device
    death = note.earlier(candidate.provenance, PROBING) if note is not None and not isolated else None
    if note is not None and death is not None:
        from accel_core.detection.loading import tried_apart  # here, as nearly no process comes here

        note.said.append(tried_apart(candidate.name, candidate.provenance, death))
    counted = None
    if isolated or settings.isolated or doubtful or untried or death is not None:
        from accel_core.detection.device_apart import ask_child  # here, as most processes start none

        outcome = ask_child(candidate, group, settings.probe_timeout, pinned=pinned)
        if isolated:
            return outcome
        if outcome.status not in (Status.USABLE, Status.NO_DEVICE):
            return after(outcome, death) if death is not None else outcome
        if outcome.status is Status.NO_DEVICE and not pinned:
            return outcome
        if candidate.backend.count_starts_device:
            counted = outcome
    if note is None:
        return ask_device(candidate, group, pinned=pinned, counted=counted)
    step = functools.partial(note.step, candidate.provenance, candidate.name, PROBING)
    outcome = ask_device(candidate, group, pinned=pinned, stage=step, counted=counted)
    note.survived(candidate.provenance, PROBING)
    return outcome


def _takes_the_slot(candidate: Candidate, settings: Settings, group: Group) -> bool:
    """Whether its import takes torch's one PrivateUse1 slot, for which another candidate would be too late.

    A package that then counts no device, or fails, would leave this process to nobody.
    """
    if not candidate.backend.private_use1 or not private_use1_is_free():
        return False
    others = group.beside(candidate)
    rivals = [b for b in others if b.private_use1 and installed_imports(b)]
    return bool(rivals or len(settings.pins) > 1 or builtin.unclaimed((*others, candidate.backend)))
