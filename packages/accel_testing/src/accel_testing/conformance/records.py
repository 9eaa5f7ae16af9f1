"""The results of a conformance run: one result for each check, and a report with all results."""

from __future__ import annotations

import enum
from collections import Counter
from typing import NamedTuple

from accel_testing.conformance.catalogue import Check

__all__ = ["INTERRUPTED", "ConformanceReport", "Outcome", "Result"]

#: The reason for checks that had not finished when the run was interrupted.
INTERRUPTED = "the run was interrupted before the check ended"


class Outcome(str, enum.Enum):
    """The outcome of a conformance check."""

    PASSED = "passed"
    FAILED = "failed"
    #: The check failed, as the vendor's file expects.
    EXPECTED = "expected failure"
    #: The check passed, although the vendor's file expects a failure.
    UNEXPECTED = "unexpected pass"
    #: The vendor's file skips the check.
    SKIPPED = "skipped"
    #: The device does not claim the checked feature.
    NOT_CLAIMED = "not claimed"
    #: The check could not run, because no accelerator was found or a fixture failed.
    NOT_RUN = "not run"
    #: The check's process timed out and was killed.
    HUNG = "hung"
    #: The check's process crashed.
    DIED = "died"

    @property
    def is_good(self) -> bool:
        """Return whether the outcome is passed, expected failure, skipped or not claimed."""
        return self in (
            Outcome.PASSED,
            Outcome.EXPECTED,
            Outcome.SKIPPED,
            Outcome.NOT_CLAIMED,
        )


class Result(NamedTuple):
    """The result of a conformance check."""

    check: Check
    outcome: Outcome
    #: The reason why the check did not pass, or an empty string if it passed.
    message: str = ""
    seconds: float = 0.0


class ConformanceReport(NamedTuple):
    """A report on a conformance run, with the results of all checks and the versions of the packages."""

    backend: str
    distribution: str
    version: str
    #: The version of accel-core, which is also the version of the checks.
    kit: str
    torch: str
    python: str
    #: A description of the simulated device, such as `"acme:2 by accel-simulated 0.1.0"`, or an empty string
    #: for a real device.
    simulated: str
    #: The highest requested level.
    level: int
    results: tuple[Result, ...]
    seconds: float
    #: The frameworks that passed a check, with their versions, such as `("deepspeed 0.19.8",)`.
    frameworks: tuple[str, ...] = ()

    def results_of(self, level: int) -> tuple[Result, ...]:
        """Return the results of the checks at one level."""
        return tuple(result for result in self.results if result.check.level == level)

    @property
    def reached(self) -> int | None:
        """Return the highest level that the backend reached, or `None` if it did not even reach level 0.

        A level is reached if all outcomes at this level and the levels below are good. A level in which no
        check passed is not reached, for example if no framework is installed or the machine has only one
        device.
        """
        reached = None
        for level in range(self.level + 1):
            outcomes = [result.outcome for result in self.results_of(level)]
            if not all(outcome.is_good for outcome in outcomes):
                break
            if outcomes and Outcome.PASSED not in outcomes:
                break
            reached = level
        return reached

    @property
    def is_interrupted(self) -> bool:
        """Return whether the run was interrupted, so that some checks have no outcome."""
        return any(result.message == INTERRUPTED for result in self.results)

    def count(self, outcome: Outcome) -> int:
        """Return the number of checks that had this outcome."""
        return Counter(result.outcome for result in self.results)[outcome]

    @property
    def score(self) -> str:
        """Return the reached level and the number of passed checks, such as `"accel L2 · 96/100"`.

        The last number is the number of all checks.
        """
        level = "–" if self.reached is None else f"L{self.reached}"
        return f"accel {level} · {self.count(Outcome.PASSED)}/{len(self.results)}"
