"""Call a function on the accelerator in a child process, so that a crash in vendor code ends only the child.

The child process chooses the accelerator as `get_accelerator()` does, and then calls the function, so torch
is imported only once. If the child process crashes during the choice, each candidate is tried in a separate
child process. The chosen candidate is then used in one more child process, which imports no other candidate.
"""

from __future__ import annotations

import contextlib
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
    "print_fallback_warnings",
    "run_in_child",
]

#: Called with a description of each step before the step begins, so that a crash report can name the step.
Progress: TypeAlias = "Callable[[str], None]"
#: The number of steps that may crash the child process and be skipped before the call fails.
_MAX_SKIPPED_STEPS = 8


class Chosen(NamedTuple):
    """The accelerator that a function uses in a child process, with information on how it was chosen."""

    accelerator: Accelerator
    #: How the accelerator was chosen, or `None` if the caller named it.
    how: How | None
    #: A sentence for each package that breaks torch's autoload. Empty if there is no such package, or if
    #: nothing searched for such packages.
    autoload: tuple[str, ...]


#: A function that runs in the child process. Its parameters are the accelerator, the arguments, and a
#: `Progress`. It returns a result made up of JSON types.
ChildFn: TypeAlias = "Callable[[Chosen, dict[str, Any], Progress], dict[str, Any]]"


class ChildResult(NamedTuple):
    """A function's result from a child process, with the warnings that the caller should print."""

    #: What the function returned.
    value: dict[str, Any]
    #: The declaration of the accelerator's backend.
    backend: Backend
    #: Warnings that the CPU is used. The flag is True if the only reason is that no accelerator is present.
    fallback_warnings: tuple[tuple[str, bool], ...]
    #: A sentence for each backend that crashed during the choice.
    crashes: tuple[str, ...]


class _LastStep(NamedTuple):
    """The step that the child process had begun when it ended."""

    step: str
    #: The accelerator's name and distribution, or an empty string if the child process had not chosen an
    #: accelerator.
    accelerator: str

    @classmethod
    def from_report(cls, report: child.ChildReport) -> _LastStep:
        """Return the last step that the child process reported."""
        return cls(report.stage, report.stage_facts.get("accelerator", ""))


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
    """Call `function` with the accelerator in a child process, and return the function's result.

    `function` must be defined at the top level of a module. `pin` names the accelerator to use; with `None`,
    an accelerator is chosen. Error messages about `pin` quote `settings.request`. `timeout` limits the total
    time for choosing the accelerator and calling the function, in seconds; `None` means no limit. With
    `live`, the child's output is shown while the child runs. `start` is the function that starts the child
    process.

    With `skip_crashes`, if a step of `function` crashes the child process, `function` is called again without
    that step. Up to 8 steps can be skipped. `arguments["skipped"]` then maps the name of each skipped step to
    a description of how the process ended.

    Raises the same errors as `get_accelerator()`. Raises `BackendUnavailableError` if the child process ends
    without a result.
    """
    job: dict[str, Any] = {
        "function": f"{function.__module__}:{function.__qualname__}",
        "arguments": dict(arguments),
        "pin": None if pin is None else list(pin),
        "request": settings.request,
    }
    crashes: list[str] = []
    skipped: dict[str, str] = {}
    job["arguments"]["skipped"] = skipped
    while True:
        report = _run_child(job, timeout, live=live, start=start)
        if report.answer is not None:
            return _result_or_error_of_answer(report.answer, crashes)
        last = _LastStep.from_report(report)
        has_chosen = bool(last.accelerator)
        was_choice_isolated = "isolated" in job
        if has_chosen and skip_crashes and _can_skip(last.step, skipped):
            # Try again without this step.
            skipped[last.step] = f"the child process {report.ending}{report.last_words}"
        elif has_chosen or was_choice_isolated:
            # The crash happened with the chosen accelerator, so choosing in child processes would not help.
            raise BackendUnavailableError(_crash_message(last, report))
        else:
            # The choice itself crashed. Try again with an accelerator that is chosen in isolation.
            choice = _choose_in_children(settings, pin)
            if choice.crashes:
                crashes += choice.crashes
            else:
                crashes.append(
                    "The child process that was choosing an accelerator "
                    f"{report.ending} at: {last.step}"
                )
            job |= choice.job_entries


def _can_skip(step: str, skipped: Mapping[str, str]) -> bool:
    """Return whether `step` has not been skipped yet, and fewer than 8 steps have been skipped."""
    return step not in skipped and len(skipped) < _MAX_SKIPPED_STEPS


def _run_child(
    job: dict[str, Any],
    timeout: float | None,
    *,
    live: bool,
    start: Callable[..., Any] | None,
) -> child.ChildReport:
    """Run `run_job` in a child process, and return a report.

    With `live`, the child's output is printed while the child runs. Otherwise, it is printed at the end, if
    the child has a result.

    Raises `BackendUnavailableError` if the child process cannot be started.
    """
    try:
        report = child.run(run_job, job, timeout, autoload=True, live=live, start=start)
    except OSError as error:
        problem = (
            f"the child process that uses the accelerator cannot be started: {error}"
        )
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
    """Choose an accelerator by trying each backend in a separate child process.

    Called after a process crashed during its choice. Raises the same errors as `get_accelerator()`.
    """
    if pin is not None:
        settings = replace(settings, pins=(qualified_pin(settings, pin),))
    # With isolated settings, plugins too are loaded in child processes, so a crash does not end the command.
    settings = replace(settings, isolated=True)
    record = with_autoload_conflicts(select(settings, isolated=True), settings)
    if record.error is not None:
        raise record.error
    chosen = record.chosen
    assert chosen is not None
    crashes = []
    for verdict in record.verdicts:
        if verdict.status in (Status.CRASHED, Status.TIMED_OUT):
            crashes.append(_skipped_backend_sentence(verdict))
    distribution = ""
    # Only a backend that an entry point declares has a distribution to pin.
    if chosen.provenance.value:
        distribution = normalize_distribution(chosen.distribution)
    how = None
    if pin is None:
        how = record.how.value
    job_entries = {
        "isolated": True,
        "pin": [chosen.name, distribution],
        "how": how,
        "autoload": list(record.autoload),
    }
    return _ChoiceInChildren(job_entries, crashes)


def _skipped_backend_sentence(verdict: Verdict) -> str:
    """Return a sentence that names the skipped backend, the reason, and the next step if there is one."""
    sentence = f"{verdict.name} ({verdict.provenance}) is skipped: {verdict.reason}"
    if verdict.hint:
        sentence += f". Next step: {verdict.hint}"
    return sentence


def _crash_message(last: _LastStep, report: child.ChildReport) -> str:
    """Return the error message for a child that ended without a result."""
    ending = f"{report.ending} at: {last.step}{report.last_words}"
    next_step = (
        "Next step: run `accel why`, which tries each backend in a separate process."
    )
    if last.accelerator:
        return (
            f"the child process that was using {last.accelerator} {ending}. {next_step}"
        )
    return f"the child process that was creating the accelerator {ending}. {next_step}"


def _result_or_error_of_answer(
    answer: dict[str, Any], crashes: list[str]
) -> ChildResult:
    """Return the result in `answer`, which `run_job` returned, or raise the error in `answer`."""
    if "error" in answer:
        error_class: type[AccelError] = getattr(
            errors, answer["error"], BackendUnavailableError
        )
        raise error_class(answer["message"])
    fallback_warnings = []
    for message, merely_absent in answer["fallback"]:
        fallback_warnings.append((str(message), bool(merely_absent)))
    return ChildResult(
        answer["value"],
        decode_backend(answer["backend"]),
        tuple(fallback_warnings),
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
    """Call `function` on an accelerator in a child process, and return the function's result.

    `name` is the accelerator's name; with `None`, an accelerator is chosen. `timeout` is in seconds.
    `options` are further keyword arguments for `call_on_accelerator`. A warning is printed to stderr for each
    backend that crashed while the accelerator was being chosen. A warning is also printed if the CPU is used
    because no accelerator is usable.

    Raises the same errors as `call_on_accelerator`. Error messages about `name` repeat the command as the
    user typed it.
    """
    if name is not None:
        typed_command = f"{click.get_current_context().command_path} {name}"
        settings = replace(settings, request=typed_command, is_pinned_by_variable=False)
    result = call_on_accelerator(
        function, arguments, settings, timeout=timeout, pin=name, **options
    )
    for sentence in result.crashes:
        click.echo(f"Warning: {sentence}.\n", err=True)
    for message, merely_absent in result.fallback_warnings:
        _print_fallback_warning(message, merely_absent=merely_absent)
    return result


def _print_fallback_warning(message: str, *, merely_absent: bool) -> None:
    """Print a warning. If it only reports that no accelerator is present, print it only with `-v`."""
    is_verbose = LOGGER.isEnabledFor(logging.INFO)
    if is_verbose or not merely_absent:
        click.echo(f"Warning: {message}\n", err=True)


def print_fallback_warnings() -> contextlib.AbstractContextManager[None]:
    """Return a context manager that prints CPU fallback warnings to stderr, without their source lines."""

    def print_warning(warning: AcceleratorFallbackWarning) -> None:
        _print_fallback_warning(str(warning), merely_absent=warning.merely_absent)

    return _redirect_fallback_warnings(print_warning)


@contextlib.contextmanager
def _redirect_fallback_warnings(
    handle: Callable[[AcceleratorFallbackWarning], None],
) -> Iterator[None]:
    """Call `handle` with each CPU fallback warning in a `with` block. Show all other warnings as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AcceleratorFallbackWarning)
        original_showwarning = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
        ) -> None:
            if isinstance(message, AcceleratorFallbackWarning):
                handle(message)
            else:
                original_showwarning(message, category, *args, **kwargs)

        # `catch_warnings` restores the original function at the end of the block.
        warnings.showwarning = show
        yield


# --- In the child --------------------------------------------------------------------------------------


def run_job(job: dict[str, Any], begin_stage: child.Stage) -> dict[str, Any]:
    """Run a job in the child process: get the accelerator, call the job's function and return its result.

    `begin_stage` is called at the beginning of each step, with a description of the step. If an `AccelError`
    is raised, the error's class name and message are returned instead of a result.
    """
    if job.get("isolated"):
        # Other code in this process may search for plugins, and must not load those that crashed.
        os.environ[ACCEL_PROBE.name] = "isolated"
    fallback_warnings: list[tuple[str, bool]] = []

    def collect_warning(warning: AcceleratorFallbackWarning) -> None:
        fallback_warnings.append((str(warning), warning.merely_absent))

    def report_step_of_choice(step: guard.Step) -> None:
        begin_stage(step.text)

    try:
        with (
            _redirect_fallback_warnings(collect_warning),
            guard.steps_sent_to(report_step_of_choice),
        ):
            chosen = _get_accelerator_for_job(job)
        accelerator = chosen.accelerator
        full_name = f"{accelerator.name} ({accelerator.backend.provenance})"

        def report_progress(step: str) -> None:
            begin_stage(step, accelerator=full_name)

        module, _, name = job["function"].partition(":")
        function: ChildFn = getattr(import_module(module), name)
        value = function(chosen, job["arguments"], report_progress)
    except AccelError as error:
        return {"error": type(error).__name__, "message": str(error)}
    backend = accelerator.backend
    if backend.provenance is None:
        # The commands print the provenance, so they need one.
        backend = replace(backend, provenance=Provenance("", ""))
    return {"value": value, "backend": asdict(backend), "fallback": fallback_warnings}


def _get_accelerator_for_job(job: dict[str, Any]) -> Chosen:
    """Return the accelerator that the job names, or the chosen accelerator if the job names none."""
    if job["pin"] is None:
        accelerator = get_accelerator()
        record = selection()
        return Chosen(accelerator, record.how, record.autoload)
    accelerator = accelerator_of_pin(Pin(*job["pin"]), job["request"])
    if job.get("isolated"):
        # The parent process chose this accelerator, so other code in this process must get it too.
        set_accelerator(accelerator)
    how = None
    if job.get("how") is not None:
        how = How(job["how"])
    autoload = tuple(job.get("autoload", ()))
    return Chosen(accelerator, how, autoload)
