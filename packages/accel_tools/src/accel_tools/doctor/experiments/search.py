"""Find which of some changes alter the outcome of a program: the search, without the changes themselves.

Nothing is concluded from a program that fails only sometimes: it must fail three times
unchanged, and a proof is confirmed by putting the change back and leaving it out again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from accel_tools.doctor.experiments.trial import NOTHING, Change, Outcome

#: How often the unchanged program must fail before anything is tried.
_REPEATS = 2


@dataclass(frozen=True)
class Row:
    """A row of the table: a change, and what it proves if the outcome changes."""

    change: Change
    #: What the child runs without, for people: `"LD_PRELOAD='/opt/x.so'"`.
    name: str
    #: The next step if it is the cause; gets the outcome that the change alters.
    step: Callable[[Outcome], str]
    #: Whether that outcome points at it: the likeliest rows are tried first.
    is_likely: Callable[[Outcome], bool] = field(default=lambda _: False)
    #: Words of the name that come before it: another folder is not left out.
    how: str = "without"
    #: The change takes away what the program may need: folders of a toolkit.
    may_be_needed: bool = False

    def __str__(self) -> str:
        return f"{self.how} {self.name}"


@dataclass(frozen=True)
class Result:
    """The result of a search."""

    #: The rows that together alter the outcome; none of them can be put back.
    causes: tuple[Row, ...] = ()
    #: The outcome with all of them.
    outcome: Outcome | None = None
    #: The rows that were tried alone, or all together, in vain.
    tried: tuple[Row, ...] = ()
    #: The rows without which the program fails otherwise: each may be one of several causes.
    altering: tuple[Row, ...] = ()
    #: The rows for which no time was left.
    untried: tuple[Row, ...] = ()
    #: The unchanged program does not always fail.
    is_flaky: bool = False
    #: A process could not be started, so that the experiments say nothing.
    is_unstarted: bool = False


class _FlakyError(Exception):
    """The same program fails once, and once does not."""


class _OutOfTimeError(Exception):
    """The time for all experiments is over."""


class _UnstartedError(Exception):
    """A process could not be started."""


@dataclass
class Search:
    """Searches for the changes that make a failing program work, by running it with them.

    `run` runs the program once, with a change; up to `at_once` runs go in parallel.
    """

    run: Callable[[Change], Outcome]
    #: Whether an outcome is better than the unchanged program's.
    is_better: Callable[[Outcome], bool]
    #: The time at which no further run starts, by `time.monotonic`.
    end: float
    at_once: int = 1
    #: Called with the words of what is tried next.
    show: Callable[[str], None] = lambda _: None
    _tried: dict[str, Row] = field(default_factory=dict)
    _altering: dict[str, Row] = field(default_factory=dict)
    #: Leaving all out fails otherwise than the unchanged program: some of it is needed.
    _is_needed: bool = False

    def first_of(self, rows: Sequence[Row]) -> Result:
        """Return the first row that alters the outcome alone; of rows that exclude each other."""
        return self._guarded(rows, lambda: self._alone(rows, None))

    def causes_among(self, rows: Sequence[Row], failed: Outcome) -> Result:
        """Return which rows alter the outcome `failed` of the unchanged program."""
        return self._guarded(rows, lambda: self._causes(rows, failed))

    def _guarded(self, rows: Sequence[Row], search: Callable[[], list[Row]]) -> Result:
        """Return what `search` finds, confirmed, among rows of a program that always fails."""
        try:
            self._require_failures(_REPEATS)
            causes = search()
            if causes:
                return self._confirmed(causes)
        except _UnstartedError:
            return Result(is_unstarted=True)
        except _FlakyError:
            return Result(tried=tuple(self._tried.values()), is_flaky=True)
        except _OutOfTimeError:
            known = {**self._tried, **self._altering}
            left = tuple(row for row in rows if row.name not in known)
            return self._in_vain(tuple(self._tried.values()), left)
        return self._in_vain(tuple(rows))

    def _in_vain(self, tried: tuple[Row, ...], untried: tuple[Row, ...] = ()) -> Result:
        """Return a result without a cause; what alters the failure was not in vain."""
        without_effect = tuple(row for row in tried if row.name not in self._altering)
        altering = tuple(self._altering.values())
        return Result(tried=without_effect, untried=untried, altering=altering)

    def _causes(self, rows: Sequence[Row], failed: Outcome) -> list[Row]:
        likely = [row for row in rows if row.is_likely(failed)]
        causes = self._alone(likely, failed)
        if not causes:
            causes = self._together(rows, failed)
        if not causes and (self._is_needed or len(rows) == 1):
            rest = [row for row in rows if row not in likely]
            rest.sort(key=lambda row: row.may_be_needed)
            causes = self._alone(rest, failed)
        return causes

    def _require_failures(self, times: int) -> None:
        self.show("the same again")
        if any(map(self.is_better, self._run_each([NOTHING] * times))):
            raise _FlakyError

    def _alone(self, rows: Sequence[Row], failed: Outcome | None) -> list[Row]:
        """Return the first row that makes the outcome better, in a list; empty if none does.

        A row that leaves another failure than `failed` is noted as altering it.
        """
        waiting = list(rows)
        while waiting:
            batch, waiting = waiting[: self.at_once], waiting[self.at_once :]
            self.show(str(batch[0]))
            outcomes = self._run_each([row.change for row in batch])
            for row, outcome in zip(batch, outcomes, strict=True):
                # Without what it needs a program fails otherwise, too.
                is_alike = failed is None or not _differs(outcome, failed)
                known = self._tried if is_alike or row.may_be_needed else self._altering
                known.setdefault(row.name, row)
                if self.is_better(outcome):
                    return [row]
        return []

    def _together(self, rows: Sequence[Row], failed: Outcome) -> list[Row]:
        """Leave all out that no program needs, then the rest too; return the causes among them.

        If the failure stays what it is without all of them, none of them is a cause.
        """
        harmless = [row for row in rows if not row.may_be_needed]
        groups = [harmless, list(rows)] if harmless != list(rows) else [harmless]
        for group in groups:
            if len(group) < 2:
                continue
            self.show("without all of it")
            outcome = self._run_one(group)
            if self.is_better(outcome):
                return self._fewest(group)
            if _differs(outcome, failed):
                self._is_needed = True
        return []

    def _fewest(self, rows: list[Row]) -> list[Row]:
        """Return the fewest of `rows`, which alter the outcome together, that still do."""
        while len(rows) > 1:
            middle = len(rows) // 2
            halves = (rows[:middle], rows[middle:])
            self.show(f"which of {len(rows)}")
            changes = [_sum(half) for half in halves]
            better = map(self.is_better, self._run_each(changes))
            smaller = [
                half for half, is_it in zip(halves, better, strict=True) if is_it
            ]
            if not smaller:
                return self._put_back_one_by_one(*halves)
            rows = smaller[0]
        return rows

    def _put_back_one_by_one(self, first: list[Row], second: list[Row]) -> list[Row]:
        """Return the fewest rows where each half has causes: Junker's QuickXplain."""
        of_second = self._needed(first, first, second)
        return [*self._needed(of_second, of_second, first), *of_second]

    def _needed(self, out: list[Row], new: list[Row], rows: list[Row]) -> list[Row]:
        """Return the fewest of `rows` that alter the outcome where `out` is left out, too.

        `new` are the rows that `out` got last; without any the answer is known.
        """
        if new:
            self.show(f"which of {len(rows)}")
            if self.is_better(self._run_one(out)):
                return []
        if len(rows) == 1:
            return rows
        middle = len(rows) // 2
        first, second = rows[:middle], rows[middle:]
        of_second = self._needed([*out, *first], first, second)
        of_first = self._needed([*out, *of_second], of_second, first)
        return [*of_first, *of_second]

    def _confirmed(self, causes: list[Row]) -> Result:
        """Put the causes back, each alone too, and leave them out again.

        Raises `_FlakyError` if an outcome differs from the one before.
        """
        self._require_failures(1)
        for row in causes if len(causes) > 1 else ():
            others = [other for other in causes if other is not row]
            if self.is_better(self._run_one(others)):
                raise _FlakyError
        outcome = self._run_one(causes)
        if not self.is_better(outcome):
            raise _FlakyError
        return Result(tuple(causes), outcome)

    def _run_one(self, rows: Iterable[Row]) -> Outcome:
        return self._run_each([_sum(rows)])[0]

    def _run_each(self, changes: Sequence[Change]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for place in range(0, len(changes), self.at_once):
            if time.monotonic() >= self.end:
                raise _OutOfTimeError
            outcomes += self._run_at_once(changes[place : place + self.at_once])
        if any(outcome.is_unstarted for outcome in outcomes):
            raise _UnstartedError
        return outcomes

    def _run_at_once(self, changes: Sequence[Change]) -> list[Outcome]:
        try:
            with ThreadPoolExecutor(max_workers=len(changes)) as pool:
                return list(pool.map(self.run, changes))
        except RuntimeError:  # no thread can be started
            return [self.run(change) for change in changes]


def _differs(outcome: Outcome, other: Outcome) -> bool:
    """Whether two programs fail with different errors, or come differently far.

    Addresses and other numbers in an error differ from run to run.
    """
    if outcome.reach != other.reach:
        return True
    return _without_numbers(outcome.failure) != _without_numbers(other.failure)


def _without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "", text)


def _sum(rows: Iterable[Row]) -> Change:
    total = NOTHING
    for row in rows:
        total = total + row.change
    return total
