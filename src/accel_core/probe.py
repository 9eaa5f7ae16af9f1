"""A backend to its verdict: the checks that import nothing, then the device.

Nothing is raised: every failure is a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from accel_core.backend import Backend, Provenance
from accel_core.build import Group, ask_device, ask_plugin
from accel_core.checks import Context, can_be_broken, run_checks, with_hardware
from accel_core.isolation import probe_in_child
from accel_core.log import LOGGER
from accel_core.settings import Settings
from accel_core.verdict import Reason, Status, Verdict, Why

if TYPE_CHECKING:
    from accel_core.interface import Accelerator


class Prober:
    """Probes backends; nothing is probed twice.

    With `isolated`, as commands do, only in child processes, without importing torch here;
    it then also looks for broken packages of backends without a device. `built`: the
    accelerators that this process has, which are not built again.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        isolated: bool = False,
        built: Mapping[Backend, Accelerator] = MappingProxyType({}),
    ) -> None:
        self._settings = settings
        self.isolated = isolated
        self._built = built
        self._known: dict[tuple[str, Provenance, int, bool], Verdict] = {}

    def probe(
        self, verdict: Verdict, among: tuple[Verdict, ...], *, pinned: bool = False
    ) -> Verdict:
        """Return the verdict on a backend, judged beside the others `among` which it is.

        `pinned`: the user asked for this backend by name, so it may be usable without a
        device, as on a login node.
        """
        known = self._recall(verdict, pinned)
        if known is not None:
            return known
        start = time.perf_counter()
        found = self._probe(with_hardware(verdict), among, pinned=pinned)
        found = replace(found, ms=(time.perf_counter() - start) * 1e3)
        if self.isolated and not pinned and can_be_broken(found):
            found = self._with_broken_package(found, verdict, among)
        LOGGER.debug(
            "%s: %s, after %.1f ms. %s",
            found.name,
            found.status.label,
            found.ms,
            found.why.reason if found.why else "",
        )
        self._known[_key(verdict, pinned)] = found
        return found

    def check(self, verdict: Verdict, why: Why) -> Verdict:
        """Return the verdict without probing: what rules it out, else `why` it is not."""
        seen = with_hardware(verdict)
        found, _ = run_checks(seen, Context(self._settings))
        return found or replace(seen, status=Status.NOT_PROBED, why=why)

    def _recall(self, verdict: Verdict, pinned: bool) -> Verdict | None:
        """Return a verdict that was found before; a usable one is usable as a pin too."""
        ranked = self._known.get(_key(verdict, False))
        if ranked is not None and ranked.usable:
            return ranked
        return self._known.get(_key(verdict, pinned))

    def _probe(
        self, verdict: Verdict, among: tuple[Verdict, ...], *, pinned: bool
    ) -> Verdict:
        context = Context(self._settings, pinned)
        ruled_out, uncertain = run_checks(verdict, context)
        if ruled_out is not None:
            return ruled_out
        group = Group(among, built=self._built)
        found = self._ask(verdict, group, pinned=pinned)
        if uncertain and not pinned and _confirms_absence(found):
            return replace(uncertain, slot=found.slot, ms=found.ms)
        if pinned and found.lacks_device:
            # What was seen without the vendor's package says more than its count.
            because = uncertain.why if uncertain else found.why
            why = Why(Reason.PINNED_WITHOUT_DEVICE, {"because": because})
            return replace(found, status=Status.USABLE, why=why)
        return found

    def _ask(self, verdict: Verdict, group: Group, *, pinned: bool) -> Verdict:
        """Ask the plugin and its device: in a child process, in this one, or in both."""
        if self.isolated or self._settings.isolated:
            # A built-in backend may answer without importing anything.
            found = ask_plugin(verdict, group) if verdict.builtin else None
            if found is None:
                timeout = self._settings.probe_timeout
                found = probe_in_child(verdict, group, timeout, pinned=pinned)
            can_be_built = found.usable or (pinned and found.lacks_device)
            if self.isolated or not can_be_built:
                return found
        return ask_device(verdict, group, pinned=pinned)

    def _with_broken_package(
        self, found: Verdict, verdict: Verdict, among: tuple[Verdict, ...]
    ) -> Verdict:
        """Probe as if pinned, to find a broken package behind the missing device."""
        pinned = self.probe(verdict, among, pinned=True)
        is_broken = pinned.status.is_failure
        if not is_broken or pinned.status is Status.TIMED_OUT:
            return found
        return replace(found, also=pinned, cause=pinned.cause, where=pinned.where)


def _confirms_absence(verdict: Verdict) -> bool:
    """Whether the vendor counts none either, or fails as it does without its device."""
    return verdict.status is Status.NO_DEVICE or verdict.status.is_failure


def _key(verdict: Verdict, pinned: bool) -> tuple[str, Provenance, int, bool]:
    return verdict.name, verdict.provenance, verdict.priority, pinned
