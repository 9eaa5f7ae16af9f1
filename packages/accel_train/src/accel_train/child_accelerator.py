"""Ask an accelerator in a child process, so that a crash in a plugin or vendor package ends only the child.

The child chooses as `get_accelerator()` does and computes the whole answer, so torch is imported once. If the
child crashes while it chooses, each candidate is tried in a child of its own. The candidate that is then
chosen is asked in another child, which imports no other candidate.
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
    "Answer",
    "Chosen",
    "Step",
    "answer_of",
    "call_on_accelerator",
    "fallback_in_words",
]

#: Called with each question before it is asked, so that a crash names it.
Step: TypeAlias = "Callable[[str], None]"
#: The number of questions that may crash the process before there is no answer.
_MOST_CRASHES = 8


class Chosen(NamedTuple):
    """The accelerator that the child process asks."""

    accelerator: Accelerator
    #: How it was chosen; `None` where it was named.
    how: How | None
    #: What torch's autoload spoils, where that was looked for.
    autoload: tuple[str, ...]


#: Makes the answer in the child, of what JSON can hold: from the accelerator, the arguments and the steps.
Make: TypeAlias = "Callable[[Chosen, dict[str, Any], Step], dict[str, Any]]"


class Answer(NamedTuple):
    """The answer of the child process, and what the caller has to print beside it."""

    answer: dict[str, Any]
    #: The declaration of the backend that was asked.
    backend: Backend
    #: Why the CPU was chosen as a fallback, and whether only because there is no accelerator.
    fallback: tuple[tuple[str, bool], ...]
    #: The backends that crashed while they were tried, a sentence each.
    crashed: tuple[str, ...]


def call_on_accelerator(
    make: Make,
    arguments: Mapping[str, Any],
    settings: Settings,
    *,
    timeout: float | None,
    pin: Pin | None = None,
    live: bool = False,
    skipping: bool = False,
    start: Callable[..., Any] | None = None,
) -> Answer:
    """Return what `make` returns when it is called, in a child process, with the accelerator.

    `make` is a top-level function of a module. The accelerator is the one that `pin` names, or the chosen one
    if `pin` is `None`. Errors about `pin` quote the text of `settings.request`. `timeout`: seconds for
    choosing and answering; `None` for no limit. `live`: show the child's output while it runs. `skipping`: if
    a step of `make` crashes the child, run `make` again without that step, as often as needed;
    `arguments["skipped"]` maps the name of each such step to how the process ended. `start` starts the child.

    Raises what choosing raises, and `BackendUnavailableError` if the child process gives no answer.
    """
    job: dict[str, Any] = {
        "make": f"{make.__module__}:{make.__qualname__}",
        "arguments": dict(arguments),
        "pin": None if pin is None else list(pin),
        "asked": settings.request,
    }
    crashed: list[str] = []
    skipped: dict[str, str] = {}
    while True:
        job["arguments"]["skipped"] = skipped
        try:
            report = child.run(
                answer_in_child, job, timeout, autoload=True, live=live, start=start
            )
        except OSError as error:
            problem = f"no child process can be started to ask the accelerator: {error}"
            raise BackendUnavailableError(problem) from error
        if report.answer is not None:
            if not live:
                report.print_output()
            return _read(report.answer, crashed)
        at, who = (
            json.loads(report.stage)
            if report.stage.startswith("[")
            else (report.stage, "")
        )
        if who and skipping and at not in skipped and len(skipped) < _MOST_CRASHES:
            skipped[at] = f"the process that asked {report.ending}{report.last_words}"
        elif (
            who or "apart" in job
        ):  # it was chosen; or what lived in children of its own dies all the same
            raise BackendUnavailableError(_no_answer(who, at, report))
        else:
            job |= _chosen_apart(settings, pin, at, report, crashed)


def _chosen_apart(
    settings: Settings,
    pin: Pin | None,
    at: str,
    report: child.ChildReport,
    crashed: list[str],
) -> dict[str, Any]:
    """Choose in child processes, after a process crashed while it chose: what the job is then."""
    wanted = (
        settings
        if pin is None
        else replace(settings, pins=(qualified_pin(settings, pin),))
    )
    # The command goes on where a program ends: it has told of that.
    apart = replace(wanted, isolated=True)
    record = with_autoload_conflicts(select(apart, isolated=True), apart)
    if record.error is not None:
        raise record.error
    chosen = record.chosen
    assert chosen is not None
    fell = [
        v for v in record.verdicts if v.status in (Status.CRASHED, Status.TIMED_OUT)
    ]
    crashed += map(_passed_over, fell)
    if not fell:
        crashed.append(f"The process that chose {report.ending} at: {at}")
    distribution = (
        normalize_distribution(chosen.distribution) if chosen.provenance.value else ""
    )
    return {
        "apart": True,
        "pin": [chosen.name, distribution],
        "how": None if pin is not None else record.how.value,
        "autoload": list(record.autoload),
    }


def _passed_over(verdict: Verdict) -> str:
    hint = f". Next step: {verdict.hint}" if verdict.hint else ""
    return f"{verdict.name} ({verdict.provenance}) is skipped: {verdict.reason}{hint}"


def _no_answer(who: str, at: str, report: child.ChildReport) -> str:
    asked = (
        f"{who}: the process that asked it"
        if who
        else "the process that builds the accelerator"
    )
    ended = f"{report.ending} at: {at}{report.last_words}"
    return f"{asked} {ended}. `accel why` tries every backend in a process of its own."


def _read(told: dict[str, Any], crashed: list[str]) -> Answer:
    if "error" in told:
        kind: type[AccelError] = getattr(errors, told["error"], BackendUnavailableError)
        raise kind(told["message"])
    fallback = tuple(
        (str(message), bool(merely)) for message, merely in told["fallback"]
    )
    return Answer(
        told["answer"], decode_backend(told["backend"]), fallback, tuple(crashed)
    )


# --- For a command -------------------------------------------------------------------------------------


def answer_of(
    make: Make,
    arguments: dict[str, Any],
    settings: Settings,
    name: Pin | None,
    *,
    timeout: float | None,
    **how: Any,
) -> Answer:
    """Return the answer of `make` on the accelerator `name`, or on the chosen one, from a child process.

    Raises what `accel_core.accelerator` and `get_accelerator` raise; errors repeat the command as it was
    typed. Writes a warning to stderr for each backend that crashed while it was tried, and one if the CPU is
    used. `how` are keyword arguments of `call_on_accelerator`.
    """
    if name is not None:
        settings = replace(
            settings, request=f"{click.get_current_context().command_path} {name}"
        )
    asked = call_on_accelerator(
        make, arguments, settings, timeout=timeout, pin=name, **how
    )
    for sentence in asked.crashed:
        click.echo(f"Warning: {sentence}.\n", err=True)
    for message, merely_absent in asked.fallback:
        _say(message, merely_absent=merely_absent)
    return asked


def _say(message: str, *, merely_absent: bool) -> None:
    """Print a warning; one that only says that no accelerator is present is printed under `-v` alone."""
    if LOGGER.isEnabledFor(logging.INFO) or not merely_absent:
        click.echo(f"Warning: {message}\n", err=True)


def fallback_in_words() -> contextlib.AbstractContextManager[None]:
    """Return a context manager that prints the CPU fallback warning as a message, without a code line."""
    return _fallbacks_to(
        lambda warning: _say(str(warning), merely_absent=warning.merely_absent)
    )


@contextlib.contextmanager
def _fallbacks_to(tell: Callable[[AcceleratorFallbackWarning], None]) -> Iterator[None]:
    """Within the block, hand `tell` the warnings that the CPU is used; others are shown as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AcceleratorFallbackWarning)
        usual = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *rest: Any, **more: Any
        ) -> None:
            if isinstance(message, AcceleratorFallbackWarning):
                tell(message)
            else:
                usual(message, category, *rest, **more)

        warnings.showwarning = show
        yield


# --- In the child --------------------------------------------------------------------------------------


def answer_in_child(job: dict[str, Any], stage: child.Stage) -> dict[str, Any]:
    """In the child: choose an accelerator, or take the named one, and return the answer."""
    if job.get("apart"):  # whatever else looks for plugins must not meet what crashed
        os.environ[ACCEL_PROBE.name] = "isolated"
    try:
        fallback: list[tuple[str, bool]] = []
        noting = _fallbacks_to(
            lambda warning: fallback.append((str(warning), warning.merely_absent))
        )
        with noting, guard.steps_to(lambda what: stage(json.dumps([what, ""]))):
            chosen = _choose(job)
        accelerator = chosen.accelerator
        who = f"{accelerator.name} ({accelerator.backend.provenance})"
        module, _, name = job["make"].partition(":")
        make: Make = getattr(import_module(module), name)
        answer = make(
            chosen, job["arguments"], lambda what: stage(json.dumps([what, who]))
        )
    except AccelError as error:
        return {"error": type(error).__name__, "message": str(error)}
    declared = replace(
        accelerator.backend,
        provenance=accelerator.backend.provenance or Provenance("", ""),
    )
    return {"answer": answer, "backend": asdict(declared), "fallback": fallback}


def _choose(job: dict[str, Any]) -> Chosen:
    if job["pin"] is None:
        accelerator = get_accelerator()
        record = selection()
        return Chosen(accelerator, record.how, record.autoload)
    accelerator = accelerator_of_pin(Pin(*job["pin"]), job["asked"])
    if job.get("apart"):  # it is the chosen one too
        set_accelerator(accelerator)
    how = job.get("how")
    return Chosen(
        accelerator, None if how is None else How(how), tuple(job.get("autoload", ()))
    )
