"""A program that does not do what it should, and the experiments that find the cause."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from accel_core import hardware
from accel_core.torch_import import AUTOLOAD
from accel_tools.doctor.experiments import table, trial
from accel_tools.doctor.experiments.search import Result, Row, Search
from accel_tools.doctor.experiments.trial import Outcome, Program

#: Runs for which there must be time where the unchanged program does not end.
_HANGING_RUNS = 5
#: How many runs that start no device may go in parallel.
_AT_ONCE = 4
#: How many changes are named that altered nothing; the facts have all.
_NAMED = 4


class Goal(enum.Enum):
    """The step in which a program fails."""

    IMPORT = "import"
    COUNT = "count"
    COMPUTE = "compute"


@dataclass(frozen=True)
class Case:
    """A program, its outcome on this machine, and what is missing in that."""

    program: Program
    outcome: Outcome
    goal: Goal
    #: The backend; empty for torch itself.
    about: str = ""
    #: The devices that the hardware and the variables show; `None` if unknown.
    expected: int | None = None

    @property
    def failed_module(self) -> str:
        """The module whose import failed; empty if all were imported."""
        return failed_module(self.program, self.outcome)

    def is_better(self, outcome: Outcome) -> bool:
        """Whether `outcome` reaches the goal, or comes closer to it."""
        before = self.outcome
        if self.goal is Goal.IMPORT:
            return len(outcome.imported) > len(before.imported)
        if self.goal is Goal.COUNT:
            return (outcome.count or 0) > (before.count or 0)
        # A change that hides the device that fails has not mended it.
        return outcome.is_well and (outcome.count or 0) >= (before.count or 1)

    def effect(self, outcome: Outcome) -> str:
        """Return what the program does now: "this machine shows 1 device"."""
        if self.goal is Goal.IMPORT:
            return f"`import {self.failed_module}` works"
        if self.goal is Goal.COMPUTE:
            return f"{devices_in_words(outcome)} computed"
        count = outcome.count or 0
        return f"this machine shows {count} device{'' if count == 1 else 's'}"


def failed_module(program: Program, outcome: Outcome) -> str:
    """Return the module whose import failed; empty if all were imported."""
    done = len(outcome.imported)
    return program.modules[done] if done < len(program.modules) else ""


def cases_of(
    program: Program, outcome: Outcome, expected: int | None
) -> Iterator[Case]:
    """Yield what the outcome lacks; nothing if all went well."""
    module = failed_module(program, outcome)
    name = program.verdict.name if program.verdict else ""
    if module:
        about = "" if module == "torch" else name
        importing = replace(program, verdict=None, others=())
        yield Case(importing, outcome, Goal.IMPORT, about)
        return
    if expected is not None and outcome.count is not None and outcome.count < expected:
        counting = replace(program, counts_only=True)
        yield Case(counting, outcome, Goal.COUNT, name, expected)
    if outcome.failure:
        yield Case(program, outcome, Goal.COMPUTE, name)


def devices_in_words(outcome: Outcome) -> str:
    """Return the devices that computed: `"cuda:0 to cuda:7"`."""
    names = [device.device for device in outcome.devices if not device.error]
    if len(names) > 2 and len(names) == len(outcome.devices):
        return f"{names[0]} to {names[-1]}"
    return " and ".join(names)


@dataclass(frozen=True)
class Proof:
    """The result of the experiments on a case, in words."""

    #: "Proven: without …", or what was tried.
    text: str
    #: The next step; empty unless a cause is proven.
    step: str = ""
    #: All changes that altered nothing, in words.
    tried: str = ""


def investigated(case: Case, end: float, show: Callable[[str], None]) -> Proof:
    """Return what experiments until `end`, by `time.monotonic`, prove about the case."""
    program = _in_less_time(case, end)
    # Programs that compute at the same time may disturb each other.
    at_once = min(hardware.usable_cores(), _AT_ONCE)
    search = Search(
        run=lambda change: trial.run(program, change),
        is_better=case.is_better,
        end=end,
        at_once=1 if case.goal is Goal.COMPUTE else at_once,
        show=show,
    )
    found = table.rows(program)
    result = search.causes_among(found, case.outcome)
    if [row.change for row in result.causes] == [table.WITHOUT_AUTOLOAD]:
        failing = _failing_extension(program, end, show)
        if failing is not None:
            return failing
    return _in_words(case, result)


def _failing_extension(
    program: Program, end: float, show: Callable[[str], None]
) -> Proof | None:
    """Return that a package which torch's autoload imports fails by itself; `None` if none does."""
    for module, distribution in table.extensions():
        if time.monotonic() >= end:
            return None
        show(f"{module} by itself")
        alone = replace(program, modules=(*program.modules[:1], module))
        outcome = trial.run(alone, table.WITHOUT_AUTOLOAD)
        if failed_module(alone, outcome) == module:
            text = (
                f"Proven: `import {module}` of {distribution}, which torch's autoload "
                f"runs, fails by itself: {outcome.error}"
            )
            name, _, _ = distribution.partition(" ")
            step = f"mend {name}, or pip uninstall {name}; a program without it runs with {AUTOLOAD}=0"
            return Proof(text, step)
    return None


def _in_less_time(case: Case, end: float) -> Program:
    """Return the program with a deadline by which a change can be told from none."""
    runs = _HANGING_RUNS if case.outcome.is_late else 2
    left = max(1.0, end - time.monotonic())
    return replace(case.program, timeout=min(case.program.timeout, left / runs))


def _in_words(case: Case, result: Result) -> Proof:
    if result.causes and result.outcome is not None:
        causes = " and ".join(map(str, result.causes))
        text = f"Proven: {causes} {case.effect(result.outcome)}"
        steps = [row.step(case.outcome) for row in result.causes]
        return Proof(text, "; and ".join(dict.fromkeys(steps)))
    clauses = list(not_proven(result))
    limits = table.untestable(case.outcome)
    if limits:
        clauses.append(f"Could not be tried: {', '.join(limits)}")
    tried = ", ".join(map(str, result.tried))
    return Proof("; ".join(clauses), tried=tried)


def not_proven(result: Result) -> Iterator[str]:
    """Yield what was tried in vain, and what was not tried, a clause each."""
    if result.is_flaky:
        yield "Nothing is proven: the program without any change fails only sometimes"
        return
    if result.is_unstarted:
        yield "No experiment ran: a process could not be started"
        return
    if result.altering:
        names = _named(result.altering)
        yield f"Another error {names}: it may be one of several causes"
    if result.tried:
        yield f"Not the cause (tried {len(result.tried)}): {_named(result.tried)}"
    if result.untried:
        yield f"No time was left to try {len(result.untried)} more"
    if not (result.altering or result.tried or result.untried):
        yield "There is nothing to try"


def _named(rows: Sequence[Row]) -> str:
    names = [str(row) for row in rows]
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} others" if rest > 0 else "")
