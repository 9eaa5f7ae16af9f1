"""Write notes for the user about settings that are probably mistakes.

A setting may be misspelled, name a backend that is not installed, pin a backend whose
device cannot be used, or have been changed too late.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from accel_core.explain.reasons import words_of
from accel_core.settings import Pin, Settings
from accel_core.text import did_you_mean
from accel_core.verdict import Note, Selection, Verdict, Why


def setting_notes(settings: Settings, selection: Selection) -> tuple[Note, ...]:
    """Return a note for the user on each setting that is probably a mistake."""
    notes = [
        Note(f"accel-core has no setting {name}. Did you mean {meant}?")
        for name, meant in settings.misspelt
    ]
    if settings.pins:  # Pins make the other settings irrelevant for these notes.
        return (*notes, *_pin_without_device(settings, selection.chosen))
    names = {verdict.name for verdict in selection.verdicts}
    notes += _misspelt_names("ACCEL_ALLOW", settings.allow, names)
    notes += _misspelt_names("ACCEL_BLOCK", settings.block, names)
    return tuple(notes)


def _misspelt_names(variable: str, pins: Iterable[Pin], names: set[str]) -> list[Note]:
    """Return a note for each name that is not installed but resembles an installed
    name.
    """
    notes = []
    for pin in pins:
        if not pin.name or pin.name in names:
            continue
        candidates = [name for name in names if name[0] == pin.name[0]]
        suggestion = did_you_mean(pin.name, candidates)
        if suggestion:
            problem = f"{variable} names {pin.name}, which is not installed."
            notes.append(Note(f"{problem}{suggestion}"))
    return notes


def _pin_without_device(settings: Settings, chosen: Verdict | None) -> list[Note]:
    """Return a note if the pinned backend's device is present or hidden, but cannot be
    used.

    A program that uses the device will fail. On a login node without the device, no
    note is needed.
    """
    if chosen is None or chosen.backend is None or chosen.devices != 0:
        return []
    visibility = chosen.backend.visibility
    names = visibility.filters + visibility.variables
    may_be_here = chosen.hardware_signs or any(name in os.environ for name in names)
    if chosen.absent or not may_be_here:
        return []
    words = words_of(_with_overridden_reason(chosen))
    problem = (
        f"{settings.request} was applied although no device is usable: {words.text}"
    )
    return [Note(problem, words.step, chosen.name)]


def _with_overridden_reason(verdict: Verdict) -> Verdict:
    """Return the verdict with the reason that it would have without the pin."""
    because = verdict.why.get("because") if verdict.why else None
    return replace(verdict, why=because) if isinstance(because, Why) else verdict


def late_change_note(
    variable: str, *, before: str | None, now: str | None, backend: str
) -> Note:
    """Return the note on an environment variable that was changed after `backend` was chosen.

    `before` is the value at the time of the choice, and `now` is the present value.
    Each is `None` if the variable was not set.
    """
    text = (
        f"{variable} was {before!r} when {backend} was chosen and is {now!r} now, which "
        "has no effect any more"
    )
    return Note(text, "set it before Python starts", backend)
