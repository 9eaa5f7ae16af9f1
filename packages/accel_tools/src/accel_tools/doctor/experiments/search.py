"""Find the changes that alter the outcome of a failing program.

`table` has the changes. Nothing is concluded from a program that fails only sometimes: the
unchanged program must fail three times, and a proof is confirmed by running the program once
more without the change and once more with it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from accel_tools.doctor.experiments.trial import NOTHING, Change, Outcome

#: How often the unchanged program must fail again before a change is tried.
_REPEATS = 2


def _ignore(_description: str) -> None:
    """Show no progress."""


def _is_unlikely(_outcome: Outcome) -> bool:
    return False


@dataclass(frozen=True)
class Experiment:
    """A change, and what it proves if it improves the outcome."""

    change: Change
    #: The name for people, such as `"LD_PRELOAD='/opt/x.so'"`, which follows `preposition`.
    name: str
    #: A function that gets the outcome without the change, and returns the next step if the change
    #: is the cause.
    step: Callable[[Outcome], str]
    #: A function that gets the outcome without the change, and returns whether the outcome suggests
    #: that the change is the cause. Likely experiments run first.
    is_likely: Callable[[Outcome], bool] = field(default=_is_unlikely)
    #: The word or words before the name.
    preposition: str = "without"
    #: Whether the change may remove something that the program needs, such as a toolkit's folder.
    may_be_needed: bool = False

    def __str__(self) -> str:
        return f"{self.preposition} {self.name}"


@dataclass(frozen=True)
class Result:
    """Result of a search."""

    #: The experiments that together improve the outcome; each of them is necessary.
    causes: tuple[Experiment, ...] = ()
    #: The outcome with the changes of all causes.
    outcome: Outcome | None = None
    #: The experiments without effect.
    tried: tuple[Experiment, ...] = ()
    #: The experiments that lead to a different failure: each may be one of several causes.
    altering: tuple[Experiment, ...] = ()
    #: The experiments that did not run because of the time limit.
    untried: tuple[Experiment, ...] = ()
    #: Whether the unchanged program fails only sometimes.
    is_flaky: bool = False
    #: Whether a process could not be started, so that the experiments prove nothing.
    is_unstarted: bool = False


class _FlakyError(Exception):
    """The same program fails in some runs and succeeds in other runs."""


class _OutOfTimeError(Exception):
    """The time limit for all experiments was reached."""


class _UnstartedError(Exception):
    """A process could not be started."""


@dataclass
class Search:
    """Search for the changes with which a failing program succeeds, by running it with changes."""

    #: A function that runs the program once, with a change.
    run: Callable[[Change], Outcome]
    #: A function that returns whether an outcome is better than that of the unchanged program.
    is_better: Callable[[Outcome], bool]
    #: The value of `time.monotonic` after which no run starts.
    end: float
    #: The number of runs in parallel.
    at_once: int = 1
    #: A function that is called with the description of each experiment that begins.
    show: Callable[[str], None] = _ignore
    _tried: dict[str, Experiment] = field(default_factory=dict)
    _altering: dict[str, Experiment] = field(default_factory=dict)
    #: Whether the program fails differently with all changes, which remove something that it needs.
    _is_needed: bool = False

    def find_first(self, experiments: Sequence[Experiment]) -> Result:
        """Return the first experiment that improves the outcome.

        Use this method for changes that cannot be combined.
        """
        return self._guarded(experiments, lambda: self._try_alone(experiments, None))

    def find_causes(self, experiments: Sequence[Experiment], failed: Outcome) -> Result:
        """Return the experiments that improve `failed`, the outcome of the unchanged program."""
        return self._guarded(experiments, lambda: self._causes(experiments, failed))

    def _guarded(
        self,
        experiments: Sequence[Experiment],
        search: Callable[[], list[Experiment]],
    ) -> Result:
        """Return the confirmed result of `search`, if the unchanged program always fails."""
        try:
            self._require_failures(_REPEATS)
            causes = search()
            if causes:
                return self._confirm(causes)
        except _UnstartedError:
            return Result(is_unstarted=True)
        except _FlakyError:
            return Result(tried=tuple(self._tried.values()), is_flaky=True)
        except _OutOfTimeError:
            known = {**self._tried, **self._altering}
            untried = tuple(e for e in experiments if e.name not in known)
            return self._without_cause(tuple(self._tried.values()), untried)
        return self._without_cause(tuple(experiments))

    def _without_cause(
        self,
        tried: tuple[Experiment, ...],
        untried: tuple[Experiment, ...] = (),
    ) -> Result:
        """Return a result without a cause, with experiments that alter the failure listed separately."""
        return Result(
            tried=tuple(e for e in tried if e.name not in self._altering),
            altering=tuple(self._altering.values()),
            untried=untried,
        )

    def _causes(
        self, experiments: Sequence[Experiment], failed: Outcome
    ) -> list[Experiment]:
        """Try likely experiments alone, then all together, then the rest alone; return the causes."""
        likely = [e for e in experiments if e.is_likely(failed)]
        causes = self._try_alone(likely, failed)
        if not causes:
            causes = self._try_together(experiments, failed)
        if not causes and (self._is_needed or len(experiments) == 1):
            rest = [e for e in experiments if e not in likely]
            rest.sort(key=lambda experiment: experiment.may_be_needed)
            causes = self._try_alone(rest, failed)
        return causes

    def _require_failures(self, times: int) -> None:
        """Run the unchanged program again; raise `_FlakyError` if it succeeds."""
        self.show("the same program again")
        if any(map(self.is_better, self._run_each([NOTHING] * times))):
            raise _FlakyError

    def _try_alone(
        self, experiments: Sequence[Experiment], failed: Outcome | None
    ) -> list[Experiment]:
        """Return a list with the first experiment that improves the outcome, or an empty list.

        An experiment that leads to a failure other than `failed` is recorded in `_altering`.
        """
        for first in range(0, len(experiments), self.at_once):
            batch = experiments[first : first + self.at_once]
            self.show(str(batch[0]))
            outcomes = self._run_each([experiment.change for experiment in batch])
            for experiment, outcome in zip(batch, outcomes, strict=True):
                self._record(experiment, outcome, failed)
                if self.is_better(outcome):
                    return [experiment]
        return []

    def _record(
        self, experiment: Experiment, outcome: Outcome, failed: Outcome | None
    ) -> None:
        """Record the experiment in `_altering` if it alters the failure, otherwise in `_tried`."""
        is_same = failed is None or not _differs(outcome, failed)
        # Without something that it needs, a program fails otherwise anyway.
        if is_same or experiment.may_be_needed:
            self._tried.setdefault(experiment.name, experiment)
        else:
            self._altering.setdefault(experiment.name, experiment)

    def _try_together(
        self, experiments: Sequence[Experiment], failed: Outcome
    ) -> list[Experiment]:
        """Apply all harmless changes together, then all changes, and return the causes among them.

        If the failure is the same with all changes, no change is a cause.
        """
        harmless = [e for e in experiments if not e.may_be_needed]
        groups = [harmless]
        if len(harmless) < len(experiments):
            groups.append(list(experiments))
        for group in groups:
            if len(group) < 2:
                continue
            self.show("all changes together")
            outcome = self._run_one(group)
            if self.is_better(outcome):
                return self._fewest(group)
            if _differs(outcome, failed):
                self._is_needed = True
        return []

    def _fewest(self, experiments: list[Experiment]) -> list[Experiment]:
        """Return the smallest subset of the experiments that still improves the outcome."""
        while len(experiments) > 1:
            middle = len(experiments) // 2
            first, second = experiments[:middle], experiments[middle:]
            self.show(f"which of {len(experiments)} changes")
            outcomes = self._run_each([_sum(first), _sum(second)])
            if self.is_better(outcomes[0]):
                experiments = first
            elif self.is_better(outcomes[1]):
                experiments = second
            else:
                return self._causes_in_both(first, second)
        return experiments

    def _causes_in_both(
        self, first: list[Experiment], second: list[Experiment]
    ) -> list[Experiment]:
        """Return the smallest set of experiments with causes in both halves (Junker's QuickXplain)."""
        of_second = self._needed(first, first, second)
        return [*self._needed(of_second, of_second, first), *of_second]

    def _needed(
        self,
        applied: list[Experiment],
        added: list[Experiment],
        experiments: list[Experiment],
    ) -> list[Experiment]:
        """Return the smallest subset of the experiments that improves the outcome with `applied`.

        `added` are the experiments that were added to `applied` last. If `added` is empty,
        `applied` alone has already been tried.
        """
        if added:
            self.show(f"which of {len(experiments)} changes")
            if self.is_better(self._run_one(applied)):
                return []
        if len(experiments) == 1:
            return experiments
        middle = len(experiments) // 2
        first, second = experiments[:middle], experiments[middle:]
        of_second = self._needed([*applied, *first], first, second)
        of_first = self._needed([*applied, *of_second], of_second, first)
        return [*of_first, *of_second]

    def _confirm(self, causes: list[Experiment]) -> Result:
        """Confirm that the program fails without all causes' changes, and succeeds with them.

        If there are several causes, the program must also fail without the change of each cause.
        Raises `_FlakyError` if an outcome differs from the expected outcome.
        """
        self._require_failures(1)
        if len(causes) > 1:
            for cause in causes:
                others = [other for other in causes if other is not cause]
                if self.is_better(self._run_one(others)):
                    raise _FlakyError
        outcome = self._run_one(causes)
        if not self.is_better(outcome):
            raise _FlakyError
        return Result(tuple(causes), outcome)

    def _run_one(self, experiments: Iterable[Experiment]) -> Outcome:
        """Run the program once with the changes of all experiments."""
        return self._run_each([_sum(experiments)])[0]

    def _run_each(self, changes: Sequence[Change]) -> list[Outcome]:
        """Run the program once per change, and return the outcomes.

        Raises `_OutOfTimeError` at the time limit, and `_UnstartedError` if a process cannot be
        started.
        """
        outcomes: list[Outcome] = []
        for first in range(0, len(changes), self.at_once):
            if time.monotonic() >= self.end:
                raise _OutOfTimeError
            outcomes += self._run_in_parallel(changes[first : first + self.at_once])
        if any(outcome.is_unstarted for outcome in outcomes):
            raise _UnstartedError
        return outcomes

    def _run_in_parallel(self, changes: Sequence[Change]) -> list[Outcome]:
        try:
            with ThreadPoolExecutor(max_workers=len(changes)) as pool:
                return list(pool.map(self.run, changes))
        except RuntimeError:  # no thread can be started
            return [self.run(change) for change in changes]


def _differs(outcome: Outcome, other: Outcome) -> bool:
    """Return whether two programs fail with different errors, or at different steps.

    Numbers in errors are ignored, because addresses and other numbers differ from run to run.
    """
    if outcome.reach != other.reach:
        return True
    return _without_numbers(outcome.failure) != _without_numbers(other.failure)


def _without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "", text)


def _sum(experiments: Iterable[Experiment]) -> Change:
    """Return one change that combines the changes of all experiments."""
    total = NOTHING
    for experiment in experiments:
        total = total + experiment.change
    return total
