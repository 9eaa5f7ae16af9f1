"""Write notes for the user about settings that are probably mistakes.

A setting may be misspelled, name a backend that is not installed, pin a backend whose
device cannot be used, or have been changed too late.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from accel_core.explain.reasons import words_of
from accel_core.hardware.visible_devices import visible_devices_variables
from accel_core.settings import Pin, Settings
from accel_core.text import did_you_mean
from accel_core.verdict import Note, Selection, Verdict, Why


def setting_notes(settings: Settings, selection: Selection) -> tuple[Note, ...]:
    """Return a note for the user on each setting that is probably a mistake."""
    notes = []
    for misspelt_variable, suggestion in settings.misspelt:
        text = (
            f"accel-core has no setting {misspelt_variable}. Did you mean {suggestion}?"
        )
        notes.append(Note(text))
    if settings.pins:
        # With a pin, misspelt names in ACCEL_ALLOW and ACCEL_BLOCK do not matter.
        return (*notes, *_notes_on_pin_without_device(settings, selection.chosen))
    installed_names = {verdict.name for verdict in selection.verdicts}
    notes += _notes_on_misspelt_names("ACCEL_ALLOW", settings.allow, installed_names)
    notes += _notes_on_misspelt_names("ACCEL_BLOCK", settings.block, installed_names)
    return tuple(notes)


def _notes_on_misspelt_names(
    variable: str, pins: Iterable[Pin], installed_names: set[str]
) -> list[Note]:
    """Return a note for each name in `variable` that is not installed but resembles an
    installed name.
    """
    notes = []
    for pin in pins:
        if not pin.name or pin.name in installed_names:
            continue
        # Short names resemble each other, so the first letter must be the same.
        candidates = [name for name in installed_names if name[0] == pin.name[0]]
        suggestion = did_you_mean(pin.name, candidates)
        if suggestion:
            problem = f"{variable} names {pin.name}, which is not installed."
            notes.append(Note(f"{problem}{suggestion}"))
    return notes


def _notes_on_pin_without_device(
    settings: Settings, chosen: Verdict | None
) -> list[Note]:
    """Return a note if the pinned backend's device cannot be used, although the device
    is present or hidden by a visible-devices variable.

    A program that uses the device will fail. On a machine without the device, such as a
    login node, no note is needed.
    """
    if chosen is None or chosen.backend is None or chosen.devices != 0:
        return []
    is_hidden = bool(visible_devices_variables(chosen.backend, os.environ))
    if chosen.absent or not (chosen.hardware_signs or is_hidden):
        return []
    words = words_of(_with_reason_without_pin(chosen))
    problem = (
        f"{settings.request} selects a backend that has no usable device: {words.text}"
    )
    return [Note(problem, words.step, chosen.name)]


def _with_reason_without_pin(verdict: Verdict) -> Verdict:
    """Return the verdict with the reason that it would have without the pin."""
    reason_without_pin = verdict.why.get("because") if verdict.why else None
    if isinstance(reason_without_pin, Why):
        return replace(verdict, why=reason_without_pin)
    return verdict


def late_change_note(
    variable: str, *, before: str | None, now: str | None, backend: str
) -> Note:
    """Return the note on an environment variable that was changed after `backend` was chosen.

    `before` is the value at the time of the choice, and `now` is the present value.
    Each is `None` if the variable was not set.
    """
    text = (
        f"{variable} was changed from {before!r} to {now!r} after {backend} was chosen, so "
        "the change has no effect"
    )
    return Note(text, f"set {variable} before Python starts", backend)
