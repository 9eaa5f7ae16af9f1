"""Run the smallest program on each device, because a device that is counted may fail to compute.

Each backend has a separate child process. The child starts like a script in the working folder:
with a script's path, environment variables and torch's autoload.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from accel_core import Status, Verdict, hardware, torch_build
from accel_core.checks import installed_imports
from accel_core.hardware.visible_devices import inventory, masks, set_variables
from accel_core.survey import Survey
from accel_core.verdict import How, Reason
from accel_tools.doctor.experiments import table, trial
from accel_tools.doctor.experiments.cases import (
    devices_in_words,
    failed_module,
    find_cases,
)
from accel_tools.doctor.experiments.trial import Device, Outcome, Program
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic

__all__ = ["COMPUTED", "TOPIC", "missing_devices"]

#: The code of the finding on devices that computed correct results.
COMPUTED = "compute.computed"
#: The statuses of backends for which a program is tried, because its result may differ from the
#: probe's result.
_TRIABLE = (Status.USABLE, Status.BROKEN, Status.CRASHED, Status.TIMED_OUT)
#: Reasons for a missing device that a program can contradict.
_COUNTED = (Reason.COUNTS_NONE, Reason.HIDDEN, Reason.PINNED_WITHOUT_DEVICE)


def _examine(context: DiagnosticContext) -> Iterator[Finding]:
    if torch_build() is None:  # The topic `candidates` reports that torch is missing.
        return
    survey = context.survey()
    verdicts = [v for v in survey.verdicts if _is_to_be_tried(v, context, survey)]
    programs = [_program(context, verdict, survey) for verdict in verdicts]
    for program in programs or [_program(context, None, survey)]:
        outcome = trial.run(program)
        expected = _expected_devices(context, program.verdict, survey)
        if not outcome.is_unstarted:
            context.cases += find_cases(program, outcome, expected)
        yield from _missing(context, program, outcome, expected)
        level = _level(program, outcome, context, survey)
        yield from _findings(program, outcome, level)


# --- What is tried -------------------------------------------------------------------


def _is_to_be_tried(
    verdict: Verdict, context: DiagnosticContext, survey: Survey
) -> bool:
    """Return whether to try the backend, because it is chosen, named, or expected to work."""
    if _is_chosen(verdict, survey):
        return True
    is_named = _is_requested(verdict, context) or _is_pinned(verdict, context)
    if not is_named and not _should_work(verdict, context, survey):
        return False
    return _can_be_tried(verdict)


def _is_chosen(verdict: Verdict, survey: Survey) -> bool:
    selection = survey.selection
    chosen = selection.chosen if selection is not None else None
    return chosen is not None and verdict.is_about(chosen)


def _is_requested(verdict: Verdict, context: DiagnosticContext) -> bool:
    """Return whether the command line names the backend."""
    pins = context.requested
    return any(pin.matches(verdict.name, verdict.distribution) for pin in pins)


def _is_pinned(verdict: Verdict, context: DiagnosticContext) -> bool:
    pins = context.settings.pins
    return any(pin.matches(verdict.name, verdict.distribution) for pin in pins)


def _should_work(verdict: Verdict, context: DiagnosticContext, survey: Survey) -> bool:
    """Return whether the backend's devices are present or simulated, but only the CPU is usable."""
    selection = survey.selection
    is_fallback = (
        selection is None or selection.is_unknown or selection.how is How.FALLBACK
    )
    if verdict.builtin or not is_fallback:
        return False
    return (
        bool(verdict.seen) or _simulated_devices(verdict, context, survey) is not None
    )


def _can_be_tried(verdict: Verdict) -> bool:
    if verdict.backend is None:
        return False
    if verdict.status is Status.NO_DEVICE:
        return verdict.why is not None and verdict.why.reason in _COUNTED
    return verdict.status in _TRIABLE


def _program(
    context: DiagnosticContext, verdict: Verdict | None, survey: Survey
) -> Program:
    """Return the smallest program for a backend, or for torch alone if `verdict` is `None`."""
    modules = ["torch"]
    others: tuple[Verdict, ...] = ()
    if verdict is not None:
        installed = installed_imports(verdict.declaration)
        modules += [name for name in installed[:1] if name != "torch"]
        others = tuple(v for v in survey.verdicts if not v.is_about(verdict))
    path = table.python_path()
    return Program(
        modules=tuple(modules),
        environ=dict(context.environ),
        timeout=context.settings.probe_timeout,
        verdict=verdict,
        others=others,
        site=path.folders,
        user_site=path.user_folder,
        start_files=path.start_files,
    )


def _expected_devices(
    context: DiagnosticContext, verdict: Verdict | None, survey: Survey
) -> int | None:
    """Return the expected number of devices; `None` if no device is expected.

    Devices that a valid variable hides are not expected.
    """
    if verdict is None or verdict.name == "cpu":
        return None
    backend = verdict.declaration
    devices = inventory(backend)
    mask = masks(backend, context.environ, devices)
    if mask.devices and not mask.faulty:
        return len(mask.devices)
    simulated = _simulated_devices(verdict, context, survey)
    if simulated is not None:
        return simulated
    if _is_device_expected(context, verdict, survey):
        return devices.count or 1
    return None


def _is_device_expected(
    context: DiagnosticContext, verdict: Verdict, survey: Survey
) -> bool:
    """Return whether a device is expected, because of hardware, a pin or a visible-devices variable.

    A variable counts only if the backend is requested or chosen.
    """
    if verdict.seen or _is_pinned(verdict, context):
        return True
    is_named = _is_requested(verdict, context) or _is_chosen(verdict, survey)
    return is_named and bool(set_variables(verdict.declaration, context.environ))


def _simulated_devices(
    verdict: Verdict, context: DiagnosticContext, survey: Survey
) -> int | None:
    """Return the number of devices that `ACCEL_SIMULATE` requests of the backend, at least 1.

    `None` if the backend's devices are not simulated. The backend `generic` serves a device that no
    plugin declares.
    """
    name, _, count = context.environ.get("ACCEL_SIMULATE", "").partition(":")
    backend = name.strip().lower()
    if backend and not any(other.name == backend for other in survey.verdicts):
        backend = "generic"
    if verdict.name != backend:
        return None
    return hardware.parse_number(count.strip()) or 1


# --- Findings ------------------------------------------------------------------------


def _missing(
    context: DiagnosticContext,
    program: Program,
    outcome: Outcome,
    expected: int | None,
) -> Iterator[Finding]:
    """Yield a finding if devices are missing, unless the topic `visible-devices` explains this."""
    if program.verdict is None or not outcome.count or expected is None:
        return
    is_faulty = masks(program.verdict.declaration, context.environ).faulty
    if outcome.count < expected and not is_faulty:
        yield missing_devices(program.verdict.name, outcome.count, expected)


def missing_devices(backend: str, count: int, expected: int) -> Finding:
    """Return the finding that the backend counts only `count` of `expected` devices."""
    what = f"{count} of {expected} devices can be counted"
    return Finding(Level.WARNING, "compute.missing", what, about=backend)


def _findings(program: Program, outcome: Outcome, level: Level) -> Iterator[Finding]:
    """Yield a finding on the failure, with the given level, or on the devices that computed."""
    about = program.verdict.name if program.verdict else ""
    failed = [device for device in outcome.devices if device.error]
    if outcome.is_unstarted:
        what = f"{program.name} did not run: {outcome.error}"
        yield Finding(Level.WARNING, "compute.not-run", what)
    elif outcome.error:
        yield _stopped(program, outcome, level)
    elif failed:
        yield _unusable_devices(outcome, failed, level, about)
    elif outcome.devices:
        facts = {"took": f"{outcome.seconds:.1f} s"}
        what = f"computed on {devices_in_words(outcome)}"
        yield Finding(Level.OK, COMPUTED, what, about=about, facts=facts)


def _level(
    program: Program, outcome: Outcome, context: DiagnosticContext, survey: Survey
) -> Level:
    """Return the level of the finding on a failed program."""
    verdict = program.verdict
    if outcome.is_late:
        return Level.WARNING
    if verdict is None or failed_module(program, outcome) == "torch":
        return Level.ERROR
    if verdict.seen or _is_chosen(verdict, survey) or _is_pinned(verdict, context):
        return Level.ERROR
    return Level.WARNING


def _stopped(program: Program, outcome: Outcome, level: Level) -> Finding:
    """Return the finding on a program that ended before it had computed on all devices."""
    module = failed_module(program, outcome)
    about = program.verdict.name if program.verdict and module != "torch" else ""
    facts = {"root cause": outcome.error, "failed at": outcome.stage}
    if outcome.is_late:
        late = outcome.error.removeprefix("its process ")
        what = f"{program.name} {late}; last step: {outcome.stage}"
        step = "allow more time: --timeout 300"
        return Finding(level, "compute.late", what, step, about, facts)
    if module:
        what = f"a program in {_folder()} cannot import {module}: {outcome.error}"
        return Finding(level, "compute.import", what, "", about, facts)
    what = f"{program.name}: {outcome.error}, at: {outcome.stage}"
    return Finding(level, "compute.died", what, "", about, facts)


def _unusable_devices(
    outcome: Outcome, failed: Sequence[Device], level: Level, about: str
) -> Finding:
    """Return the finding on devices that cannot compute, with the error of the first such device."""
    first = failed[0]
    names = " and ".join(device.device for device in failed)
    if len(failed) > 2:
        names = f"{len(failed)} of {len(outcome.devices)} devices"
    error = f"{first.reason}: {first.error}" if first.reason else first.error
    facts = {"root cause": first.error}
    for device in outcome.devices:
        facts[device.device] = device.error or "computed"
    what = f"{names} cannot be used: {error}"
    return Finding(level, "compute.fails", what, first.hint, about, facts)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return os.curdir


TOPIC = Topic("compute", "Computation", _examine)
