"""A program that does not do what it should, and the experiments that find the cause."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from accel_core import hardware
from accel_tools.doctor.experiments import table, trial
from accel_tools.doctor.experiments.search import Result, Row, Search
from accel_tools.doctor.experiments.trial import Outcome, Program

#: Seconds that a run in an experiment may take beside those of the unchanged program.
_PATIENCE = 10.0


@dataclass(frozen=True)
class Case:
    """A program, and its outcome on this machine."""

    program: Program
    outcome: Outcome
    #: The devices that the hardware shows; `None` if unknown.
    expected: int | None = None

    @property
    def about(self) -> str:
        """The backend; empty for torch itself."""
        is_of_torch = self.failed_module in ("torch", "")
        verdict = self.program.verdict
        if verdict is None or (self.failed_module and is_of_torch):
            return ""
        return verdict.name

    @property
    def failed_module(self) -> str:
        """The module whose import failed; empty if all were imported."""
        done = len(self.outcome.imported)
        modules = self.program.modules
        return modules[done] if done < len(modules) else ""

    @property
    def is_wrong(self) -> bool:
        """Whether something fails, or devices are missing."""
        if self.outcome.failure:
            return True
        return self.expected is not None and (self.outcome.count or 0) < self.expected

    def is_better(self, outcome: Outcome) -> bool:
        """Whether `outcome` is what this case's should be, or comes closer to it."""
        if self.failed_module:
            return len(outcome.imported) > len(self.outcome.imported)
        if self.outcome.failure:
            return outcome.is_well and bool(outcome.count) and _at_least(outcome, self.outcome)
        return (outcome.count or 0) > (self.outcome.count or 0)

    def effect(self, outcome: Outcome) -> str:
        """Return what the program does now: "this machine shows 1 device"."""
        if self.failed_module:
            return f"`import {self.failed_module}` works"
        if self.outcome.failure:
            return f"{devices_in_words(outcome)} computed"
        count = outcome.count or 0
        return f"this machine shows {count} device{'' if count == 1 else 's'}"


def _at_least(outcome: Outcome, other: Outcome) -> bool:
    """Whether no device is missing that `other` had."""
    return (outcome.count or 0) >= (other.count or 0)


def devices_in_words(outcome: Outcome) -> str:
    """Return the devices that computed: `"cuda:0 to cuda:7"`."""
    names = [device.device for device in outcome.devices if not device.error]
    if len(names) > 2 and len(names) == len(outcome.devices):
        return f"{names[0]} to {names[-1]}"
    return " and ".join(names)


@dataclass(frozen=True)
class Proof:
    """What the experiments say of a case."""

    #: "Proven: without …", or what was tried.
    text: str
    #: The next step; empty unless a cause is proven.
    step: str = ""


def investigated(case: Case, end: float, show: Callable[[str], None]) -> Proof:
    """Return what experiments until `end`, by `time.monotonic`, prove about the case."""
    program = _in_less_time(case, end)
    found = table.rows(program, case.outcome)
    search = Search(
        run=lambda change: trial.run(program, change),
        is_better=case.is_better,
        end=end,
        at_once=1 if not case.failed_module else min(hardware.usable_cores(), 4),
        show=show,
    )
    return _in_words(case, search.causes_among(found, case.outcome))


def _in_less_time(case: Case, end: float) -> Program:
    """Return the program with a deadline by which a change can be told from none."""
    left = max(1.0, end - time.monotonic())
    limit = min(case.program.timeout, left, _PATIENCE + 3 * case.outcome.seconds)
    if case.outcome.is_late:
        limit = min(case.program.timeout, left / 5)
    return trial.with_timeout(case.program, limit)


def _in_words(case: Case, result: Result) -> Proof:
    if result.causes and result.outcome is not None:
        causes = " and ".join(map(str, result.causes))
        text = f"Proven: {causes} {case.effect(result.outcome)}"
        steps = [row.step(case.outcome) for row in result.causes]
        return Proof(text, "; and ".join(dict.fromkeys(steps)))
    if result.is_flaky:
        return Proof(
            "Nothing is proven: the same program fails only sometimes on this machine"
        )
    return Proof("; ".join(_not_proven(case, result)))


def _not_proven(case: Case, result: Result) -> Iterator[str]:
    if result.tried:
        yield f"Not the cause (tried {_number(result.tried)}): {table.named(result.tried)}"
    if result.untried:
        named = table.named(result.untried)
        yield f"No time was left to try: {named}"
    limits = table.untestable(case.outcome)
    if limits:
        yield f"Could not be tried: {', '.join(limits)}"
    if not result.tried and not result.untried and not limits:
        yield "No experiment applies here"


def _number(rows: Sequence[Row]) -> str:
    return "one change" if len(rows) == 1 else f"{len(rows)} changes, alone or together"
