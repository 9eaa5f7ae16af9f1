"""Call a function on the accelerator in a child process: a crash in a vendor's code ends only the child.

The child chooses as `get_accelerator()` does and calls the function, so torch is imported once. If the child
crashes while it chooses, each candidate is tried in a child of its own. The candidate that is then chosen is
used in another child, which imports no other candidate.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from accel_core import (
    AcceleratorFallbackWarning,
    AccelError,
    Backend,
    BackendUnavailableError,
    Provenance,
    Status,
    Verdict,
    errors,
    get_accelerator,
    selection,
    set_accelerator,
)
from accel_core.backend import decode_backend
from accel_core.current import accelerator_of_pin, qualified_pin
from accel_core.explain.autoload import with_autoload_conflicts
from accel_core.log import LOGGER
from accel_core.packages import normalize_distribution
from accel_core.sandbox import child, guard
from accel_core.select import select
from accel_core.settings import ACCEL_PROBE, Pin, Settings
from accel_core.verdict import How

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = [
    "ChildFn",
    "ChildResult",
    "Chosen",
    "Progress",
    "call_on_accelerator",
    "fallback_warning_as_message",
    "run_in_child",
]

#: Called with a description of each step before it is taken, so that a crash can be reported with it.
Progress: TypeAlias = "Callable[[str], None]"
#: How many steps may crash the child and be skipped, before the call fails.
_MAX_SKIPPED_STEPS = 8


class Chosen(NamedTuple):
    """The accelerator that a function gets in the child process."""

    accelerator: Accelerator
    #: How it was chosen; `None` if the caller named it.
    how: How | None
    #: Sentences on packages that break torch's autoload; empty if they were not searched for.
    autoload: tuple[str, ...]


#: A function that runs in the child: from the accelerator, its arguments and `Progress` it returns a result,
#: of types that JSON has.
ChildFn: TypeAlias = "Callable[[Chosen, dict[str, Any], Progress], dict[str, Any]]"


class ChildResult(NamedTuple):
    """The result of a function in the child process, and the warnings that its caller has to print."""

    #: What the function returned.
    value: dict[str, Any]
    #: The declaration of the accelerator's backend.
    backend: Backend
    #: Warnings that the CPU is used, each with whether the only reason is that there is no accelerator.
    fallback_warnings: tuple[tuple[str, bool], ...]
    #: A sentence for each backend that crashed while it was tried.
    crashes: tuple[str, ...]


class _LastStep(NamedTuple):
    """The step that the child had begun when it ended."""

    step: str
    #: The accelerator, with its distribution; empty while the child had not chosen one.
    accelerator: str

    @classmethod
    def of_report(cls, report: child.ChildReport) -> _LastStep:
        """Read the step that the child reported last."""
        if report.stage.startswith("["):
            return cls(*json.loads(report.stage))
        return cls(report.stage, "")


def call_on_accelerator(
    function: ChildFn,
    arguments: Mapping[str, Any],
    settings: Settings,
    *,
    timeout: float | None,
    pin: Pin | None = None,
    live: bool = False,
    skip_crashes: bool = False,
    start: Callable[..., Any] | None = None,
) -> ChildResult:
    """Call `function` with the accelerator in a child process, and return its result.

    `function` is a top-level function of a module. The accelerator is the one that `pin` names, or the chosen
    one if `pin` is `None`. Errors about `pin` quote the text of `settings.request`. `timeout`: seconds for
    choosing and the call; `None` for no limit. `live`: show the child's output while it runs. `skip_crashes`:
    if a step of `function` crashes the child, call `function` again without that step, as often as needed;
    `arguments["skipped"]` maps the name of each such step to how the process ended. `start` starts the child.

    Raises what choosing raises, and `BackendUnavailableError` if the child process ends without a result.
    """
    job: dict[str, Any] = {
        "function": f"{function.__module__}:{function.__qualname__}",
        "arguments": dict(arguments),
        "pin": None if pin is None else list(pin),
        "asked": settings.request,
    }
    crashes: list[str] = []
    skipped: dict[str, str] = {}
    job["arguments"]["skipped"] = skipped
    while True:
        report = _run_child(job, timeout, live=live, start=start)
        if report.answer is not None:
            return _result(report.answer, crashes)
        last = _LastStep.of_report(report)
        may_skip = skip_crashes and _can_skip(last.step, skipped)
        if last.accelerator and may_skip:
            skipped[last.step] = f"the child process {report.ending}{report.last_words}"
        elif last.accelerator or "isolated" in job:
            # It crashed with the chosen accelerator; choosing in child processes would not help.
            raise BackendUnavailableError(_crash_message(last, report))
        else:
            choice = _choose_in_children(settings, pin)
            crashes += choice.crashes or [
                f"The process that chose {report.ending} at: {last.step}"
            ]
            job |= choice.job_entries


def _can_skip(step: str, skipped: Mapping[str, str]) -> bool:
    """Return whether the step has not been skipped yet, and another step may be skipped."""
    return step not in skipped and len(skipped) < _MAX_SKIPPED_STEPS


def _run_child(
    job: dict[str, Any],
    timeout: float | None,
    *,
    live: bool,
    start: Callable[..., Any] | None,
) -> child.ChildReport:
    """Run `run_job` in a child process; unless `live`, print the output of a child that has a result.

    Raises `BackendUnavailableError` if the child cannot be started.
    """
    try:
        report = child.run(run_job, job, timeout, autoload=True, live=live, start=start)
    except OSError as error:
        problem = f"no child process can be started for the accelerator: {error}"
        raise BackendUnavailableError(problem) from error
    if report.answer is not None and not live:
        report.print_output()
    return report


class _ChoiceInChildren(NamedTuple):
    """An accelerator that was chosen by trying each backend in a child process."""

    #: The entries of the child's job that name the accelerator.
    job_entries: dict[str, Any]
    #: A sentence for each backend that crashed or timed out.
    crashes: list[str]


def _choose_in_children(settings: Settings, pin: Pin | None) -> _ChoiceInChildren:
    """Choose an accelerator, trying each backend in a child process, after a process crashed while it chose.

    Raises what choosing raises.
    """
    if pin is not None:
        settings = replace(settings, pins=(qualified_pin(settings, pin),))
    # Isolated also in `settings`: a crash here is reported by the command, and does not end it.
    settings = replace(settings, isolated=True)
    record = with_autoload_conflicts(select(settings, isolated=True), settings)
    if record.error is not None:
        raise record.error
    chosen = record.chosen
    assert chosen is not None
    crashes = [
        _skipped_backend(verdict)
        for verdict in record.verdicts
        if verdict.status in (Status.CRASHED, Status.TIMED_OUT)
    ]
    distribution = ""
    if chosen.provenance.value:
        distribution = normalize_distribution(chosen.distribution)
    job_entries = {
        "isolated": True,
        "pin": [chosen.name, distribution],
        "how": None if pin is not None else record.how.value,
        "autoload": list(record.autoload),
    }
    return _ChoiceInChildren(job_entries, crashes)


def _skipped_backend(verdict: Verdict) -> str:
    """Return a sentence: which backend is skipped, why, and the next step if there is one."""
    hint = f". Next step: {verdict.hint}" if verdict.hint else ""
    return f"{verdict.name} ({verdict.provenance}) is skipped: {verdict.reason}{hint}"


def _crash_message(last: _LastStep, report: child.ChildReport) -> str:
    """Return the error message for a child that ended without a result."""
    process = "the child process that creates the accelerator"
    if last.accelerator:
        process = f"{last.accelerator}: the child process that called it"
    return (
        f"{process} {report.ending} at: {last.step}{report.last_words}. "
        "`accel why` tries every backend in a process of its own."
    )


def _result(answer: dict[str, Any], crashes: list[str]) -> ChildResult:
    """Read what `run_job` returned. Raises the error that it caught in the child."""
    if "error" in answer:
        error_class: type[AccelError] = getattr(
            errors, answer["error"], BackendUnavailableError
        )
        raise error_class(answer["message"])
    fallback_warnings = tuple(
        (str(message), bool(merely_absent))
        for message, merely_absent in answer["fallback"]
    )
    return ChildResult(
        answer["value"],
        decode_backend(answer["backend"]),
        fallback_warnings,
        tuple(crashes),
    )


# --- For a command -------------------------------------------------------------------------------------


def run_in_child(
    function: ChildFn,
    arguments: dict[str, Any],
    settings: Settings,
    name: Pin | None,
    *,
    timeout: float | None,
    **options: Any,
) -> ChildResult:
    """Call `function` on the accelerator `name`, or on the chosen one, in a child process.

    Prints a warning to stderr for each backend that crashed while it was tried, and one if the CPU is used.
    `options` are keyword arguments of `call_on_accelerator`. Returns its result, and raises what it raises;
    errors about `name` repeat the command as it was typed.
    """
    if name is not None:
        typed_command = f"{click.get_current_context().command_path} {name}"
        settings = replace(settings, request=typed_command)
    result = call_on_accelerator(
        function, arguments, settings, timeout=timeout, pin=name, **options
    )
    for sentence in result.crashes:
        click.echo(f"Warning: {sentence}.\n", err=True)
    for message, merely_absent in result.fallback_warnings:
        _print_fallback_warning(message, merely_absent=merely_absent)
    return result


def _print_fallback_warning(message: str, *, merely_absent: bool) -> None:
    """Print a warning; one that only says that no accelerator is present is printed under `-v` alone."""
    if LOGGER.isEnabledFor(logging.INFO) or not merely_absent:
        click.echo(f"Warning: {message}\n", err=True)


def fallback_warning_as_message() -> contextlib.AbstractContextManager[None]:
    """Return a context manager that prints the CPU fallback warning as a message, without a code line."""

    def print_warning(warning: AcceleratorFallbackWarning) -> None:
        _print_fallback_warning(str(warning), merely_absent=warning.merely_absent)

    return _redirect_fallback_warnings(print_warning)


@contextlib.contextmanager
def _redirect_fallback_warnings(
    handle: Callable[[AcceleratorFallbackWarning], None],
) -> Iterator[None]:
    """Within the block, call `handle` with each warning that the CPU is used; show others as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AcceleratorFallbackWarning)
        show_as_usual = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *rest: Any, **more: Any
        ) -> None:
            if isinstance(message, AcceleratorFallbackWarning):
                handle(message)
            else:
                show_as_usual(message, category, *rest, **more)

        warnings.showwarning = show
        yield


# --- In the child --------------------------------------------------------------------------------------


def run_job(job: dict[str, Any], stage: child.Stage) -> dict[str, Any]:
    """In the child process: get the accelerator, call the job's function, and return what it returned.

    `stage` records the step that is being taken. An `AccelError` is returned as its name and message.
    """
    if job.get("isolated"):
        # Whatever else searches for plugins in this process must not load those that crashed.
        os.environ[ACCEL_PROBE.name] = "isolated"
    fallback_warnings: list[tuple[str, bool]] = []

    def note_fallback(warning: AcceleratorFallbackWarning) -> None:
        fallback_warnings.append((str(warning), warning.merely_absent))

    def report_choosing(step: str) -> None:
        stage(json.dumps(_LastStep(step, "")))

    try:
        with (
            _redirect_fallback_warnings(note_fallback),
            guard.steps_to(report_choosing),
        ):
            chosen = _accelerator_of_job(job)
        accelerator = chosen.accelerator
        full_name = f"{accelerator.name} ({accelerator.backend.provenance})"

        def report_progress(step: str) -> None:
            stage(json.dumps(_LastStep(step, full_name)))

        module, _, name = job["function"].partition(":")
        function: ChildFn = getattr(import_module(module), name)
        value = function(chosen, job["arguments"], report_progress)
    except AccelError as error:
        return {"error": type(error).__name__, "message": str(error)}
    backend = replace(
        accelerator.backend,
        provenance=accelerator.backend.provenance or Provenance("", ""),
    )
    return {"value": value, "backend": asdict(backend), "fallback": fallback_warnings}


def _accelerator_of_job(job: dict[str, Any]) -> Chosen:
    """Return the accelerator that the job names, or the chosen one if it names none."""
    if job["pin"] is None:
        accelerator = get_accelerator()
        record = selection()
        return Chosen(accelerator, record.how, record.autoload)
    accelerator = accelerator_of_pin(Pin(*job["pin"]), job["asked"])
    if job.get("isolated"):
        # The parent chose it: other code in this process has to get the same one.
        set_accelerator(accelerator)
    how = job.get("how")
    autoload = tuple(job.get("autoload", ()))
    return Chosen(accelerator, None if how is None else How(how), autoload)
