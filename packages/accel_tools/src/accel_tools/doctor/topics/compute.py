"""Run the smallest program on each device, because a device that is counted may fail to compute.

Each backend has a separate child process. The child process starts like a script in the working
folder: with the `sys.path` of a script, all environment variables, and torch's autoload.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from accel_core import Status, Verdict, hardware, torch_build
from accel_core.checks import installed_imports
from accel_core.hardware.visible_devices import (
    inventory,
    read_visible_devices,
    visible_devices_variables,
)
from accel_core.survey import Survey
from accel_core.verdict import How, Reason
from accel_tools.doctor.experiments import process_settings, table, trial
from accel_tools.doctor.experiments.cases import (
    describe_computed_devices,
    failed_module,
    find_failed_programs,
    step_for_awaited,
)
from accel_tools.doctor.experiments.trial import Device, Outcome, Program
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic

__all__ = ["COMPUTED", "TOPIC", "missing_devices_finding"]

#: The code of the finding about devices that computed correct results.
COMPUTED = "compute.computed"
#: The statuses of backends on which a program is tried, because the program may get a different result
#: than the probe.
_TRIED_STATUSES = (Status.USABLE, Status.BROKEN, Status.CRASHED, Status.TIMED_OUT)
#: The statuses of backends whose installed package fails.
_FAILING_STATUSES = (Status.BROKEN, Status.CRASHED, Status.TIMED_OUT)
#: The reasons for a missing device with which a program is tried too.
_TRIED_REASONS = (Reason.COUNTS_NONE, Reason.HIDDEN, Reason.PINNED_WITHOUT_DEVICE)


def _examine_computation(context: DiagnosticContext) -> Iterator[Finding]:
    if torch_build() is None:
        # This finding is merged into that of the topic `candidates`, which has the next step.
        what = "nothing was computed, because torch is not installed"
        yield Finding(Level.ERROR, "compute.import", what)
        return
    survey = context.survey()
    programs = []
    for verdict in survey.verdicts:
        if _should_compute(verdict, context, survey):
            programs.append(_make_program(context, verdict, survey))
    if not programs:
        programs = [_make_program(context, verdict=None, survey=survey)]
    for program in programs:
        outcome = trial.run(program)
        expected = _expected_devices(context, program.verdict, survey)
        if not outcome.start_failed:
            context.failed_programs += find_failed_programs(program, outcome, expected)
        yield from _missing_devices_findings(
            context, program, outcome, expected, survey
        )
        level = _failure_level(program, outcome, context, survey)
        yield from _outcome_findings(program, outcome, level)


# --- What is tried -------------------------------------------------------------------


def _should_compute(
    verdict: Verdict, context: DiagnosticContext, survey: Survey
) -> bool:
    """Return whether to run a program on the backend.

    This is the case for the chosen backend. It is also the case for a backend that is named by the user, or
    that is expected to work because its hardware is present or simulated, if a program may get further than
    the probe did.
    """
    if _is_chosen(verdict, survey):
        return True
    is_named = _is_requested(verdict, context) or _is_pinned(verdict, context)
    if is_named or _is_expected_to_work(verdict, context, survey):
        return _may_compute(verdict)
    return False


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


def _is_expected_to_work(
    verdict: Verdict, context: DiagnosticContext, survey: Survey
) -> bool:
    """Return whether only the CPU may be usable, although the backend's devices or its package are there.

    The devices are present or simulated, or an installed package fails in another way than by a missing
    device.
    """
    selection = survey.selection
    is_other_chosen = (
        selection is not None
        and not selection.is_unknown
        and selection.how is not How.FALLBACK
    )
    # If an accelerator is chosen, the others need not work.
    if is_other_chosen or verdict.builtin:
        return False
    is_simulated = _simulated_devices(verdict, context, survey) is not None
    is_package_failing = verdict.status in _FAILING_STATUSES
    return is_simulated or is_package_failing or bool(verdict.hardware_signs)


def _may_compute(verdict: Verdict) -> bool:
    """Return whether a program may get further than the probe of the backend did."""
    if verdict.backend is None:
        return False
    if verdict.status is Status.NO_DEVICE:
        return verdict.why is not None and verdict.why.reason in _TRIED_REASONS
    return verdict.status in _TRIED_STATUSES


def _make_program(
    context: DiagnosticContext, verdict: Verdict | None, survey: Survey
) -> Program:
    """Return the smallest program for a backend, or for torch alone if `verdict` is `None`."""
    modules = ["torch"]
    other_verdicts: tuple[Verdict, ...] = ()
    if verdict is not None:
        vendor_modules = installed_imports(verdict.declaration)
        if vendor_modules and vendor_modules[0] != "torch":
            modules.append(vendor_modules[0])
        other_verdicts = tuple(v for v in survey.verdicts if not v.is_about(verdict))
    path = table.python_path()
    return Program(
        modules=tuple(modules),
        environ=_with_cache_of_simulated_devices(context.environ),
        timeout=context.settings.probe_timeout,
        verdict=verdict,
        other_verdicts=other_verdicts,
        package_folders=path.folders,
        user_site=path.user_folder,
        start_files=path.start_files,
    )


def _with_cache_of_simulated_devices(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the variables in which `ACCEL_CACHE` is set if devices are simulated.

    Otherwise an experiment without the home folder would compile the simulated device again, which takes a
    minute.
    """
    variables = dict(environ)
    if variables.get("ACCEL_SIMULATE") and not variables.get("ACCEL_CACHE"):
        user_cache = variables.get("XDG_CACHE_HOME") or "~/.cache"
        variables["ACCEL_CACHE"] = os.path.expanduser(f"{user_cache}/accel-core")  # noqa: PTH111
    return variables


def _expected_devices(
    context: DiagnosticContext, verdict: Verdict | None, survey: Survey
) -> int | None:
    """Return the number of devices that a program should find, or `None` if no device is expected.

    Devices that a valid variable hides do not count. `verdict` is the verdict on the program's backend.
    """
    if verdict is None or verdict.name == "cpu":
        return None
    backend = verdict.declaration
    physical_devices = inventory(backend)
    visibility = read_visible_devices(backend, context.environ, physical_devices)
    if visibility.devices and not visibility.faulty:  # A variable lists the devices.
        return len(visibility.devices)
    simulated = _simulated_devices(verdict, context, survey)
    if simulated is not None:
        return simulated
    if _is_device_expected(context, verdict, survey):
        return physical_devices.count or 1  # The number may be unknown.
    return None


def _is_device_expected(
    context: DiagnosticContext, verdict: Verdict, survey: Survey
) -> bool:
    """Return whether a device is expected, because of hardware, a pin or a visible-devices variable.

    A variable counts only if the backend is requested or chosen.
    """
    is_hardware_present = bool(verdict.hardware_signs)
    if is_hardware_present or _is_pinned(verdict, context):
        return True
    is_named = _is_requested(verdict, context) or _is_chosen(verdict, survey)
    variables = visible_devices_variables(verdict.declaration, context.environ)
    return is_named and bool(variables)


def _simulated_devices(
    verdict: Verdict, context: DiagnosticContext, survey: Survey
) -> int | None:
    """Return the number of the backend's devices that `ACCEL_SIMULATE` requests, at least 1.

    Returns `None` if the backend's devices are not simulated. The backend `generic` serves a device that no
    plugin declares.
    """
    # The variable is such as "acme:2": the name of a backend, and the number of devices.
    name, _, count = context.environ.get("ACCEL_SIMULATE", "").partition(":")
    backend = name.strip().lower()
    known_backends = [other.name for other in survey.verdicts]
    # The backend `generic` serves a device that no plugin declares.
    if backend and backend not in known_backends:
        backend = "generic"
    if verdict.name != backend:
        return None
    return hardware.parse_number(count.strip()) or 1


# --- Findings ------------------------------------------------------------------------


def _missing_devices_findings(
    context: DiagnosticContext,
    program: Program,
    outcome: Outcome,
    expected: int | None,
    survey: Survey,
) -> Iterator[Finding]:
    """Yield a finding if a program counts fewer devices than expected.

    A wrong value of a variable also hides devices; the topic `visible-devices` reports it. The topic
    `candidates` reports a backend without any device, except for simulated devices.
    """
    verdict = program.verdict
    if verdict is None or expected is None or outcome.count is None:
        return
    is_simulated = _simulated_devices(verdict, context, survey) is not None
    if outcome.count == 0 and not is_simulated:
        return
    visibility = read_visible_devices(verdict.declaration, context.environ)
    # A wrong variable has a finding of its own.
    if outcome.count < expected and not visibility.faulty:
        yield missing_devices_finding(verdict.name, outcome.count, expected)


def missing_devices_finding(backend: str, count: int, expected: int) -> Finding:
    """Return the finding that a program counts only `count` of a backend's `expected` devices."""
    what = f"only {count} of {expected} devices can be counted"
    return Finding(Level.WARNING, "compute.missing", what, about=backend)


def _outcome_findings(
    program: Program, outcome: Outcome, level: Level
) -> Iterator[Finding]:
    """Yield the finding about a program's failure, or about the devices that computed.

    `level` is the level of the finding if the program failed.
    """
    about = program.verdict.name if program.verdict else ""
    failed = [device for device in outcome.devices if device.error]
    if outcome.start_failed:
        what = f"{program.name} did not run: {outcome.error}"
        step = process_settings.step_for_limit(outcome)
        yield Finding(Level.WARNING, "compute.not-run", what, step)
    elif outcome.error:
        yield _stopped_program_finding(program, outcome, level)
    elif failed:
        yield _unusable_devices_finding(outcome, failed, level, about)
    elif outcome.devices:
        facts = {"took": f"{outcome.seconds:.1f} s"}
        what = f"computed on {describe_computed_devices(outcome)}"
        yield Finding(Level.OK, COMPUTED, what, about=about, facts=facts)


def _failure_level(
    program: Program, outcome: Outcome, context: DiagnosticContext, survey: Survey
) -> Level:
    """Return the level of the finding about a failed program."""
    verdict = program.verdict
    if outcome.is_timed_out:
        return Level.WARNING
    if verdict is None or failed_module(program, outcome) == "torch":
        return Level.ERROR
    is_hardware_present = bool(verdict.hardware_signs)
    is_selected = _is_chosen(verdict, survey) or _is_pinned(verdict, context)
    if is_hardware_present or is_selected:
        return Level.ERROR
    return Level.WARNING


def _stopped_program_finding(
    program: Program, outcome: Outcome, level: Level
) -> Finding:
    """Return the finding about a program that ended before it had computed on all devices."""
    last_step = outcome.stage
    module = failed_module(program, outcome)
    about = ""
    if program.verdict is not None and module != "torch":
        about = program.verdict.name
    facts = {"failed at": last_step}
    details = f"last step: {last_step}"
    if outcome.is_timed_out:
        what = f"{program.name} {outcome.ending}"
        step = "allow more time: --timeout 300"
        if outcome.awaited:
            details += f", in {outcome.awaited}"
            step = step_for_awaited(outcome.awaited)
        return Finding(
            level,
            "compute.late",
            what,
            step,
            about,
            facts,
            cause=outcome.error,
            shows_cause=False,
            details=details,
        )
    if module:
        code = "compute.import"
        what = f"a program in {_working_folder()} cannot import {module}"
        details = ""
    else:
        code = "compute.died"
        what = f"{program.name} failed"
    return Finding(
        level,
        code,
        what,
        about=about,
        facts=facts,
        cause=outcome.error,
        details=details,
    )


def _unusable_devices_finding(
    outcome: Outcome, failed: Sequence[Device], level: Level, about: str
) -> Finding:
    """Return the finding about devices that cannot compute, with the error of the first such device."""
    first = failed[0]
    if len(failed) > 2:  # A longer list would be hard to read.
        subject = f"{len(failed)} of {len(outcome.devices)} devices"
    else:
        subject = " and ".join(device.device for device in failed)
    what = f"{subject} cannot be used"
    if first.reason:
        what = f"{what}: {first.reason}"
    facts = {}
    for device in outcome.devices:
        facts[device.device] = device.error or "computed"
    # A vendor's runtime often prints the reason, and returns only a number.
    return Finding(
        level,
        "compute.fails",
        what,
        first.hint,
        about,
        facts,
        cause=first.error,
        details=outcome.printed,
    )


def _working_folder() -> str:
    """Return the working folder as text; `"."` if the folder was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return os.curdir


TOPIC = Topic("compute", "Computation", _examine_computation)
