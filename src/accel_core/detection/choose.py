"""The choice of this process: `select` with a judge that probes when it is asked."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from accel_core.detection.builtin import announced
from accel_core.detection.discovery import find, loader
from accel_core.detection.probe import Group, in_full, inspect, probe
from accel_core.detection.records import Candidate, Choice, Outcome, Unloaded, Verdict
from accel_core.detection.select import select
from accel_core.detection.trying import Note
from accel_core.machine.vendors import missing_plugins
from accel_core.settings import VARIABLES, Settings

if TYPE_CHECKING:
    from accel_core.detection.autoload import Spoiler

__all__ = ["Prober", "choose", "recorded"]

_log = logging.getLogger(__name__)


class Prober:
    """A judge that probes; `isolated`: in child processes only, so that this one imports no torch."""

    def __init__(self, settings: Settings, *, isolated: bool = False, note: Note | None = None) -> None:
        self._settings = settings
        self._note = note
        self._isolated = isolated
        self._group = Group.of(())

    def probe(
        self, candidate: Candidate | Unloaded, among: tuple[Candidate | Unloaded, ...], *, pinned: bool
    ) -> Verdict:
        """The verdict of `detection.probe`, beside the backends that the choice looks at."""
        group = self._beside(among)
        found = probe(
            candidate, self._settings, group, pinned=pinned, isolated=self._isolated, note=self._note
        )
        return self.in_full(candidate, found, among) if self._isolated and not pinned else found

    def in_full(
        self, candidate: Candidate | Unloaded, found: Verdict, among: tuple[Candidate | Unloaded, ...]
    ) -> Verdict:
        """That verdict, with what is broken besides; in a child process."""
        return found if found.broken else in_full(candidate, found, self._settings, self._beside(among))

    def can_work(self, candidate: Candidate | Unloaded, among: tuple[Candidate | Unloaded, ...]) -> bool:
        """Whether the backend is usable, asked in a child process where that cannot be read."""
        return probe(candidate, self._settings, self._beside(among), isolated=True).usable

    def autoload(self, chosen: Candidate | None, *, fallback: bool) -> tuple[Spoiler, ...]:
        """What torch's autoload spoils; it takes seconds, so a program asks only when it falls back."""
        if not (self._isolated or fallback) or not announced():
            return ()
        from accel_core.detection.autoload import spoilers  # here, as most processes have no use for it

        return spoilers(chosen.backend if chosen is not None else None, self._settings.probe_timeout)

    def _beside(self, among: tuple[Candidate | Unloaded, ...]) -> Group:
        if among is not self._group.candidates:  # one plugin manager for all of a choice
            self._group = Group.of(among)
        return self._group

    def inspect(self, candidate: Candidate | Unloaded, otherwise: Outcome) -> Verdict:
        """What is known without importing anything."""
        return inspect(candidate, self._settings, otherwise)


def choose(
    settings: Settings, environ: Mapping[str, str], *, isolated: bool = False, note: Note | None = None
) -> Choice:
    """Choose as `settings` say; a choice that fails comes back with its error, and still with its record.

    `isolated`: load plugins and probe in child processes only. `environ` is noted in the record as far as it
    mattered. `note`: of what is tried, which the caller ends when the accelerator is built.
    """
    if note is None:
        with Note(settings.probe_timeout) as own:
            return choose(settings, environ, isolated=isolated, note=own)
    start = time.perf_counter()
    load = loader(settings, note, isolated=isolated)
    choice = select(
        settings,
        lambda pin: find(pin, settings, load),
        Prober(settings, isolated=isolated, note=note),
        missing_plugins,
    )
    return recorded(choice, environ, (time.perf_counter() - start) * 1e3)


def recorded(choice: Choice, environ: Mapping[str, str], ms: float) -> Choice:
    """The choice with what its record says of this process: its number, its variables, the milliseconds."""
    names = [v.name for v in VARIABLES]
    names += [name for name in environ if name.startswith("ACCEL_")]  # a plugin's own too
    for candidate in choice.considered:
        if isinstance(candidate, Candidate):
            names += candidate.backend.visible_devices_filters + candidate.backend.visible_devices
    chosen = choice.selection.chosen
    _log.info("%s, after %.1f ms", f"choose {chosen}" if chosen else "nothing can be chosen", ms)
    mattered = {name: environ[name] for name in dict.fromkeys(names) if name in environ}
    return choice._replace(selection=choice.selection._replace(pid=os.getpid(), environ=mattered, ms=ms))
