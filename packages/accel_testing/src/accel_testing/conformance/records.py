"""Results of a run of the conformance suite: one result for each check, and the report of them all."""

from __future__ import annotations

import enum
from collections import Counter
from typing import NamedTuple

from accel_testing.conformance.catalogue import Check

__all__ = ["INTERRUPTED", "ConformanceReport", "Outcome", "Result"]

#: The reason of checks that had not ended when the run was interrupted.
INTERRUPTED = "the run was interrupted before it ended"


class Outcome(str, enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    #: It failed, as the vendor's file expects.
    EXPECTED = "expected failure"
    #: It passed, although the vendor's file expects a failure.
    UNEXPECTED = "unexpected pass"
    #: The vendor's file skips it.
    SKIPPED = "skipped"
    #: The device does not claim the feature.
    NOT_CLAIMED = "not claimed"
    #: It could not run: there is no accelerator, or a fixture failed.
    NOT_RUN = "not run"
    #: Its process did not end in time and was killed.
    HUNG = "hung"
    #: Its process crashed.
    DIED = "died"

    @property
    def is_good(self) -> bool:
        """Return whether this is not a fault: passed, expected failure, skipped or not claimed."""
        return self in (
            Outcome.PASSED,
            Outcome.EXPECTED,
            Outcome.SKIPPED,
            Outcome.NOT_CLAIMED,
        )


class Result(NamedTuple):
    """The result of one check."""

    check: Check
    outcome: Outcome
    #: Why it did not pass; empty if it passed.
    message: str = ""
    seconds: float = 0.0


class ConformanceReport(NamedTuple):
    """The results of all checks of a run, and the versions that were checked."""

    backend: str
    distribution: str
    version: str
    #: The version of accel-core, which is also that of the checks.
    kit: str
    torch: str
    python: str
    #: `"acme:2 by accel-simulated 0.1.0"`, or empty for a real device.
    simulated: str
    #: The highest level that was requested.
    level: int
    results: tuple[Result, ...]
    seconds: float
    #: The frameworks that passed a check, with their versions: `("deepspeed 0.19.8",)`.
    frameworks: tuple[str, ...] = ()

    def results_of(self, level: int) -> tuple[Result, ...]:
        """Return the results of one level."""
        return tuple(result for result in self.results if result.check.level == level)

    @property
    def reached(self) -> int | None:
        """Return the highest level up to which all outcomes are good; `None` if level 0 has faults.

        A level in which no check passed is not reached: no framework was installed, or two devices were
        needed.
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
        """Return how many checks have this outcome."""
        return Counter(result.outcome for result in self.results)[outcome]

    @property
    def score(self) -> str:
        """Return `"accel L2 · 96/100"`: the level reached, checks passed, and the number of checks."""
        level = "–" if self.reached is None else f"L{self.reached}"
        return f"accel {level} · {self.count(Outcome.PASSED)}/{len(self.results)}"
