"""An accelerator asked in a child process, so that nothing that a plugin or a vendor does ends a command.

The child chooses as `get_accelerator()` does and makes the whole answer, so that torch is imported once, as
in a process of one's own. If it does not live to answer, every candidate is tried in a child of its own, and
the one that is chosen then is asked in another child, which imports what lived and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import current, errors
from accel_core.backend import Backend, Provenance
from accel_core.detection import Candidate, How, Status, Verdict
from accel_core.detection.guard import announcing_to
from accel_core.detection.isolated import decode_candidate, encode_candidate
from accel_core.detection.select import select
from accel_core.errors import AcceleratorFallbackWarning, AccelError, BackendUnavailableError
from accel_core.settings import ACCEL_PROBE, Pin, Settings, normalize_distribution

if TYPE_CHECKING:
    from accel_core._support.child import ChildReport, Stage
    from accel_core.accelerators.interface import Accelerator

__all__ = ["Asked", "Make", "Step", "Subject", "ask", "fallbacks_to"]

#: Called with each question before it is asked, so that whoever dies of it is named.
Step = Callable[[str], None]
#: Stages of a choice may have children of their own, which take a probe's deadline each and their start.
_STAGE = 2.0
#: Of how many questions the process may die before there is no answer.
_MOST_DEATHS = 8


class Subject(NamedTuple):
    """The child's question."""

    accelerator: Accelerator
    #: How it was chosen; `None` where it was named.
    how: How | None
    #: What torch's autoload spoils, where that was looked for.
    autoload: tuple[str, ...]


#: Makes the answer, of what JSON can hold, in the child: of what is asked, arguments, and the steps.
Make = Callable[[Subject, "dict[str, Any]", Step], "dict[str, Any]"]


class Asked(NamedTuple):
    """The answer, and what is to be said beside it."""

    answer: dict[str, Any]
    #: The declaration of the backend that was asked.
    backend: Backend
    #: Why the CPU is what is left, where it is; and whether there merely is no accelerator.
    fallback: tuple[tuple[str, bool], ...]
    #: What did not survive being tried, a sentence each.
    died: tuple[str, ...]


def ask(
    make: Make,
    arguments: Mapping[str, Any],
    settings: Settings,
    *,
    pin: Pin | None = None,
    seconds: float = 0,
    live: bool = False,
    skipping: bool = False,
) -> Asked:
    """Give the result of `make`, a module's top-level function, for the accelerator in a child process.

    The accelerator is that of `pin`, whose errors call the request `settings.asked`, or else the chosen one.
    `seconds`: what each step of `make` may take, 0 for no limit; steps of the choice have twice the settings'
    `probe_timeout`. `live`: what is printed appears at once. `skipping`: a step of which the process died
    goes into the arguments' `"skipped"`, by its name with how, and all others are asked again.

    Raises what choosing raises, and `BackendUnavailableError` where the process does not live to answer.
    """
    job: dict[str, Any] = {
        "make": f"{make.__module__}:{make.__qualname__}",
        "arguments": dict(arguments),
        "pin": None if pin is None else list(pin),
        "asked": settings.asked,
        "seconds": seconds,
    }
    died: list[str] = []
    skipped: dict[str, str] = {}
    while True:
        job["arguments"]["skipped"] = skipped
        report = _run(job, settings, live=live)
        if report.answer is not None:
            if not live:
                report.pass_on()
            return _asked(report.answer, died)
        at, who = json.loads(report.stage) if report.stage.startswith("[") else (report.stage, "")
        if who and skipping and at not in skipped and len(skipped) < _MOST_DEATHS:
            skipped[at] = f"the process that asked {report.ending}"
        elif who or "apart" in job:  # it was chosen; or what lived in children of its own dies all the same
            raise BackendUnavailableError(_epitaph(who, at, report))
        else:
            job |= _chosen_apart(settings, pin, at, report, died)


def _run(job: dict[str, Any], settings: Settings, *, live: bool) -> ChildReport:
    from accel_core._support import child

    try:
        return child.run(answer_in_child, job, _STAGE * settings.probe_timeout, as_we_are=True, live=live)
    except OSError as error:
        raise BackendUnavailableError(
            f"no child process can be started to ask the accelerator: {error}"
        ) from error


def _chosen_apart(
    settings: Settings, pin: Pin | None, at: str, report: ChildReport, died: list[str]
) -> dict[str, Any]:
    """Whom to ask instead, after a process died while it chose: what a choice in child processes comes to."""
    wanted = settings if pin is None else settings._replace(pins=(current.exact(settings, pin),))
    choice = select(wanted, isolated=True)
    if choice.error is not None:
        raise choice.error
    candidate, selection = choice.candidate, choice.selection
    assert candidate is not None
    fell = [v for v in selection.verdicts if v.status in (Status.CRASHED, Status.TIMED_OUT)]
    died += map(_passed_over, fell)
    if not fell:
        died.append(f"The process that chose {report.ending} at: {at}")
    distribution = "" if candidate.builtin else normalize_distribution(candidate.distribution)
    return {
        "apart": True,
        "pin": [candidate.name, distribution],
        "how": None if pin is not None else selection.how.value,
        "autoload": list(selection.autoload),
    }


def _passed_over(verdict: Verdict) -> str:
    hint = f". Next step: {verdict.hint}" if verdict.hint else ""
    return f"{verdict.name} ({verdict.provenance}) is passed over: {verdict.reason}{hint}"


def _epitaph(who: str, at: str, report: ChildReport) -> str:
    asked = f"{who}: the process that asked it" if who else "the process that builds the accelerator"
    ended = f"{report.ending} at: {at}{report.last_words}"
    return f"{asked} {ended}. `accel why` tries every backend in a process of its own."


def _asked(told: Any, died: list[str]) -> Asked:
    if "error" in told:
        kind: type[AccelError] = getattr(errors, told["error"], BackendUnavailableError)
        raise kind(told["message"])
    fallback = tuple((str(message), bool(merely)) for message, merely in told["fallback"])
    return Asked(told["answer"], decode_candidate(told["candidate"]).backend, fallback, tuple(died))


@contextlib.contextmanager
def fallbacks_to(tell: Callable[[AcceleratorFallbackWarning], None]) -> Iterator[None]:
    """Within the block, hand `tell` the warnings that the CPU is used; others are shown as usual."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AcceleratorFallbackWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if isinstance(message, AcceleratorFallbackWarning):
                tell(message)
            else:
                usual(message, category, *rest, **more)

        warnings.showwarning = show
        yield


# --- In the child --------------------------------------------------------------------------------------


def answer_in_child(job: dict[str, Any], stage: Stage) -> dict[str, Any]:
    """In the child: choose, or take what is named, and make the answer."""
    if job.get("apart"):  # whatever else looks for plugins must not meet what died
        os.environ[ACCEL_PROBE.name] = "isolated"
    try:
        fallback: list[tuple[str, bool]] = []
        noting = fallbacks_to(lambda warning: fallback.append((str(warning), warning.merely_absent)))
        with noting, announcing_to(lambda what: stage(json.dumps([what, ""]))):
            subject = _subject(job)
        accelerator = subject.accelerator
        who = f"{accelerator.name} ({accelerator.backend.provenance})"
        module, _, name = job["make"].partition(":")
        make: Make = getattr(import_module(module), name)
        answer = make(
            subject,
            job["arguments"],
            lambda what: stage(json.dumps([what, who]), job["seconds"]),
        )
    except AccelError as error:
        return {"error": type(error).__name__, "message": str(error)}
    backend = accelerator.backend
    declared = Candidate(backend._declared_by(backend.provenance or Provenance("", "")), None)
    return {"answer": answer, "candidate": encode_candidate(declared), "fallback": fallback}


def _subject(job: dict[str, Any]) -> Subject:
    if job["pin"] is None:
        accelerator = current.get_accelerator()
        selection = current.selection()
        return Subject(accelerator, selection.how, selection.autoload)
    accelerator = current.named(Pin(*job["pin"]), job["asked"])
    if job.get("apart"):  # it is the chosen one too
        current.set_accelerator(accelerator)
    how = job.get("how")
    return Subject(accelerator, None if how is None else How(how), tuple(job.get("autoload", ())))
