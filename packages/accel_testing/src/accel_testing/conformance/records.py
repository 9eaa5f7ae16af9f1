"""Results of a run of the kit: one for each check, and the card of them all."""

from __future__ import annotations

import enum
from collections import Counter
from typing import NamedTuple

from accel_testing.conformance.catalogue import Check

__all__ = ["Card", "Outcome", "Result"]


class Outcome(str, enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    #: It failed, as the vendor's file says.
    EXPECTED = "expected failure"
    #: It passed, and the vendor's file says that it fails.
    UNEXPECTED = "unexpected pass"
    #: The vendor's file leaves it out.
    SKIPPED = "skipped"
    #: The device says that it has no such thing.
    NOT_CLAIMED = "not claimed"
    #: The check itself could not be done: there is no accelerator, or a fixture failed.
    NOT_RUN = "not run"
    #: Its process had to be ended.
    HUNG = "hung"
    #: Its process died.
    DIED = "died"

    @property
    def is_good(self) -> bool:
        """Whether nothing speaks against the backend."""
        return self in (Outcome.PASSED, Outcome.EXPECTED, Outcome.SKIPPED, Outcome.NOT_CLAIMED)


class Result(NamedTuple):
    """How one check ended."""

    check: Check
    outcome: Outcome
    #: What was found, or the reason.
    message: str = ""
    seconds: float = 0.0


class Card(NamedTuple):
    """Everything that a run found out."""

    backend: str
    distribution: str
    version: str
    #: accel-core's version: the checks are its.
    kit: str
    torch: str
    python: str
    #: `"acme:2 by accel-simulated 0.1.0"`, or empty for a real device.
    simulated: str
    #: The highest level that was asked for.
    level: int
    results: tuple[Result, ...]
    seconds: float
    #: The frameworks that passed a check, with their versions: `("deepspeed 0.19.8",)`.
    frameworks: tuple[str, ...] = ()

    def of(self, level: int) -> tuple[Result, ...]:
        """The results of one level."""
        return tuple(result for result in self.results if result.check.level == level)

    @property
    def reached(self) -> int | None:
        """The highest level up to which all is good; `None` where level 0 has faults.

        A level of which nothing passed is not reached: no framework was installed, or a device had to be two.
        """
        reached = None
        for level in range(self.level + 1):
            outcomes = [result.outcome for result in self.of(level)]
            if not all(outcome.is_good for outcome in outcomes):
                break
            if outcomes and Outcome.PASSED not in outcomes:
                break
            reached = level
        return reached

    def count(self, outcome: Outcome) -> int:
        """How many checks ended so."""
        return Counter(result.outcome for result in self.results)[outcome]

    @property
    def score(self) -> str:
        """`"accel L2 · 96/100"`: the level that was reached, checks passed, and checks in all."""
        level = "–" if self.reached is None else f"L{self.reached}"
        return f"accel {level} · {self.count(Outcome.PASSED)}/{len(self.results)}"
