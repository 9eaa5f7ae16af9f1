"""The smallest program on each device: what was counted can be used only if it computes.

Each backend has a child process of its own, which starts as a script in the current
folder does: with its path, its variables and torch's autoload.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from accel_core import Status, Verdict, torch_build
from accel_core.checks import installed_imports
from accel_core.hardware.visible_devices import inventory, masks, set_variables
from accel_core.survey import Survey
from accel_core.verdict import How, Reason
from accel_tools.doctor.experiments import table, trial
from accel_tools.doctor.experiments.cases import (
    cases_of,
    devices_in_words,
    failed_module,
)
from accel_tools.doctor.experiments.trial import Device, Outcome, Program
from accel_tools.doctor.records import Finding, Level, Topic, Visit

__all__ = ["COMPUTED", "TOPIC"]

#: The code of the finding on devices that computed.
COMPUTED = "compute.computed"
#: What can be wrong with a backend that can be tried all the same.
_TRIABLE = (Status.USABLE, Status.BROKEN, Status.CRASHED, Status.TIMED_OUT)
#: Absences that only a count can confirm.
_COUNTED = (Reason.COUNTS_NONE, Reason.HIDDEN, Reason.PINNED_WITHOUT_DEVICE)


def _examine(visit: Visit) -> Iterator[Finding]:
    if torch_build() is None:  # the topic `candidates` says so
        return
    surveyed = visit.survey()
    programs = [
        _program(visit, verdict, surveyed) for verdict in _tried(visit, surveyed)
    ]
    for program in programs or [_program(visit, None, surveyed)]:
        outcome = trial.run(program)
        expected = _expected(visit, program.verdict, surveyed)
        if not outcome.is_unstarted:
            visit.cases += cases_of(program, outcome, expected)
        yield from _missing(visit, program, outcome, expected)
        yield from _findings(
            program, outcome, _level(program, outcome, visit, surveyed)
        )


def _tried(visit: Visit, surveyed: Survey) -> Iterator[Verdict]:
    """Yield the backends to try: the chosen one, those that were asked for, and those that should work."""
    for verdict in surveyed.verdicts:
        is_wanted = _is_asked_for(verdict, visit) or _should_work(verdict, surveyed)
        is_chosen = _is_chosen(verdict, surveyed)
        if is_chosen or (is_wanted and _can_be_tried(verdict)):
            yield verdict


def _is_chosen(verdict: Verdict, surveyed: Survey) -> bool:
    selection = surveyed.selection
    chosen = selection.chosen if selection is not None else None
    return chosen is not None and verdict.is_about(chosen)


def _can_be_tried(verdict: Verdict) -> bool:
    if verdict.backend is None:
        return False
    if verdict.status is Status.NO_DEVICE:
        return verdict.why is not None and verdict.why.reason in _COUNTED
    return verdict.status in _TRIABLE


def _is_asked_for(verdict: Verdict, visit: Visit) -> bool:
    pins = (*visit.names, *visit.settings.pins)
    return any(pin.matches(verdict.name, verdict.distribution) for pin in pins)


def _should_work(verdict: Verdict, surveyed: Survey) -> bool:
    """Whether its hardware is here, and the CPU is chosen for want of a usable one."""
    selection = surveyed.selection
    is_cpu = selection is None or selection.how is How.FALLBACK
    return is_cpu and bool(verdict.seen) and not verdict.builtin


def _program(visit: Visit, verdict: Verdict | None, surveyed: Survey) -> Program:
    path = table.python_path()
    modules = ["torch"]
    others: tuple[Verdict, ...] = ()
    if verdict is not None:
        installed = installed_imports(verdict.declaration)
        modules += [name for name in installed[:1] if name != "torch"]
        others = tuple(v for v in surveyed.verdicts if not v.is_about(verdict))
    return Program(
        tuple(modules),
        dict(visit.environ),
        visit.settings.probe_timeout,
        verdict,
        others,
        site=path.folders,
        user_site=path.user_folder,
        start_files=path.start_files,
    )


def _expected(visit: Visit, verdict: Verdict | None, surveyed: Survey) -> int | None:
    """Return how many devices there should be; `None` if nothing says that there are any.

    Devices that a variable leaves out as it is meant to are not expected.
    """
    if verdict is None or verdict.name == "cpu":
        return None
    backend = verdict.declaration
    devices = inventory(backend)
    mask = masks(backend, visit.environ, devices)
    if mask.devices and not mask.faulty:
        return len(mask.devices)
    is_masked = bool(set_variables(backend, visit.environ))
    is_wanted = _is_asked_for(verdict, visit) or _is_chosen(verdict, surveyed)
    if verdict.seen or (is_masked and is_wanted) or _is_pinned(verdict, visit):
        return devices.count or 1
    return None


def _is_pinned(verdict: Verdict, visit: Visit) -> bool:
    pins = visit.settings.pins
    return any(pin.matches(verdict.name, verdict.distribution) for pin in pins)


# --- Findings -------------------------------------------------------------------------


def _missing(
    visit: Visit, program: Program, outcome: Outcome, expected: int | None
) -> Iterator[Finding]:
    """Yield that some of the devices are missing; of a faulty variable its own topic tells it."""
    if program.verdict is None or not outcome.count or expected is None:
        return
    is_faulty = masks(program.verdict.declaration, visit.environ).faulty
    if outcome.count < expected and not is_faulty:
        yield missing(program.verdict.name, outcome.count, expected)


def missing(about: str, count: int, expected: int) -> Finding:
    """Return the finding on devices that are missing."""
    what = f"{count} of {expected} devices can be counted"
    return Finding(Level.WARNING, "compute.missing", what, about=about)


def _findings(program: Program, outcome: Outcome, level: Level) -> Iterator[Finding]:
    about = program.verdict.name if program.verdict else ""
    if outcome.error:
        yield _stopped(program, outcome, level)
        return
    failed = [device for device in outcome.devices if device.error]
    if failed:
        yield _failing(outcome, failed, level, about)
    elif outcome.devices:
        facts = {"took": f"{outcome.seconds:.1f} s"}
        what = f"computed on {devices_in_words(outcome)}"
        yield Finding(Level.OK, COMPUTED, what, about=about, facts=facts)


def _level(program: Program, outcome: Outcome, visit: Visit, surveyed: Survey) -> Level:
    """Return the level of a failure."""
    verdict = program.verdict
    if outcome.is_late:
        return Level.WARNING
    if verdict is None or failed_module(program, outcome) == "torch":
        return Level.ERROR
    is_wanted = _is_chosen(verdict, surveyed) or _is_pinned(verdict, visit)
    return Level.ERROR if is_wanted or verdict.seen else Level.WARNING


def _stopped(program: Program, outcome: Outcome, level: Level) -> Finding:
    """Return the finding on a program that failed before it computed on every device."""
    if outcome.is_unstarted:
        what = f"{program.name} did not run: {outcome.error}"
        return Finding(Level.WARNING, "compute.not-run", what)
    module = failed_module(program, outcome)
    about = program.verdict.name if program.verdict and module != "torch" else ""
    facts = {"root cause": outcome.error, "failed at": outcome.stage}
    if outcome.is_late:
        what = f"{program.name} {outcome.error.removeprefix('its process ')}"
        step = "give it longer: --timeout 300"
        at = f"{what}; last step: {outcome.stage}"
        return Finding(level, "compute.late", at, step, about, facts)
    if module:
        what = f"a program in {_folder()} cannot import {module}: {outcome.error}"
        return Finding(level, "compute.import", what, "", about, facts)
    what = f"{program.name}: {outcome.error}, at: {outcome.stage}"
    return Finding(level, "compute.died", what, "", about, facts)


def _failing(
    outcome: Outcome, failed: list[Device], level: Level, about: str
) -> Finding:
    first = failed[0]
    names = " and ".join(device.device for device in failed)
    if len(failed) > 2:
        names = f"{len(failed)} of {len(outcome.devices)} devices"
    error = f"{first.reason}: {first.error}" if first.reason else first.error
    facts = {"root cause": first.error}
    facts |= {d.device: d.error or "computed" for d in outcome.devices}
    what = f"{names} cannot be used: {error}"
    return Finding(level, "compute.fails", what, first.hint, about, facts)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return os.curdir


TOPIC = Topic("compute", "Computation", _examine)
