"""Probe backends: run the checks that import nothing, then build the accelerator and
count its devices.

No error is raised: every failure is a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from accel_core.backend import Backend, Provenance
from accel_core.build import Group, plugin_verdict, probe_device
from accel_core.checks import (
    Context,
    may_have_broken_package,
    run_checks,
    with_evidence,
)
from accel_core.isolation import probe_in_child
from accel_core.log import LOGGER
from accel_core.settings import Settings
from accel_core.verdict import Reason, Status, Verdict, Why

if TYPE_CHECKING:
    from accel_core.interface import Accelerator


class Prober:
    """A prober of backends, which probes each backend only once.

    With `isolated`, as in commands, all probes run in child processes and this process
    does not import torch. The verdict on a backend without a device then also reports a
    broken package. `built` contains the accelerators that this process has already
    built.
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
        self._verdict_by_key: dict[tuple[str, Provenance, int, bool], Verdict] = {}

    def probe(
        self, verdict: Verdict, among: tuple[Verdict, ...], *, pinned: bool = False
    ) -> Verdict:
        """Return the verdict on one of the backends in `among`.

        `pinned` means that the user named this backend. A pinned backend may be usable
        without a device, as on a login node.
        """
        earlier_verdict = self._earlier_verdict(verdict, pinned=pinned)
        if earlier_verdict is not None:
            return earlier_verdict
        start = time.perf_counter()
        result = self._probe(with_evidence(verdict), among, pinned=pinned)
        result = replace(result, ms=(time.perf_counter() - start) * 1e3)
        if self.isolated and not pinned and may_have_broken_package(result):
            result = self._add_package_failure(result, verdict, among)
        LOGGER.debug(
            "%s: %s, after %.1f ms. %s",
            result.name,
            result.status.label,
            result.ms,
            result.why.reason if result.why else "",
        )
        self._verdict_by_key[_key(verdict, pinned=pinned)] = result
        return result

    def check(self, verdict: Verdict, why: Why) -> Verdict:
        """Return the verdict from the checks that import nothing. If the backend passes
        them, the verdict is that it was not probed, for the reason `why`.
        """
        verdict = with_evidence(verdict)
        results = run_checks(verdict, Context(self._settings))
        if results.excluding is not None:
            return results.excluding
        return replace(verdict, status=Status.NOT_PROBED, why=why)

    def _earlier_verdict(self, verdict: Verdict, *, pinned: bool) -> Verdict | None:
        """Return the verdict of an earlier probe, or `None` if there was none. A
        backend that is usable unpinned is usable as a pin too.
        """
        unpinned = self._verdict_by_key.get(_key(verdict, pinned=False))
        if unpinned is not None and unpinned.usable:
            return unpinned
        return self._verdict_by_key.get(_key(verdict, pinned=pinned))

    def _probe(
        self, verdict: Verdict, among: tuple[Verdict, ...], *, pinned: bool
    ) -> Verdict:
        context = Context(self._settings, pinned)
        excluding, uncertain = run_checks(verdict, context)
        if excluding is not None:
            return excluding
        group = Group(among, built=self._built)
        result = self._probe_device(verdict, group, pinned=pinned)
        if uncertain and not pinned and _confirms_absence(result):
            # The reason from the checks explains more than the reason from the probe.
            return replace(uncertain, slot=result.slot, ms=result.ms)
        if pinned and result.lacks_device:
            # The result of the checks explains more than a count of 0.
            because = uncertain.why if uncertain else result.why
            why = Why(Reason.PINNED_WITHOUT_DEVICE, {"because": because})
            return replace(result, status=Status.USABLE, why=why)
        return result

    def _probe_device(self, verdict: Verdict, group: Group, *, pinned: bool) -> Verdict:
        """Probe the plugin and its device in a child process, in this process, or in
        both.
        """
        if self.isolated or self._settings.isolated:
            # A built-in backend may answer without importing anything.
            result = plugin_verdict(verdict, group) if verdict.builtin else None
            if result is None:
                timeout = self._settings.probe_timeout
                result = probe_in_child(verdict, group, timeout, pinned=pinned)
            can_be_built = result.usable or (pinned and result.lacks_device)
            if self.isolated or not can_be_built:
                return result
            # The child has shown that this process can probe the backend safely.
        return probe_device(verdict, group, pinned=pinned)

    def _add_package_failure(
        self, result: Verdict, verdict: Verdict, among: tuple[Verdict, ...]
    ) -> Verdict:
        """Probe the backend as if it were pinned, to find a broken package of a missing
        device.
        """
        as_pinned = self.probe(verdict, among, pinned=True)
        has_timed_out = as_pinned.status is Status.TIMED_OUT
        if has_timed_out or not as_pinned.status.is_failure:
            return result
        return replace(
            result,
            package_failure=as_pinned,
            cause=as_pinned.cause,
            where=as_pinned.where,
        )


def _confirms_absence(verdict: Verdict) -> bool:
    """Return whether the vendor's package counts no device, or fails without a device."""
    return verdict.status is Status.NO_DEVICE or verdict.status.is_failure


def _key(verdict: Verdict, *, pinned: bool) -> tuple[str, Provenance, int, bool]:
    return verdict.name, verdict.provenance, verdict.priority, pinned
