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
#: How many failures may hide one another.
_MAX_HIDDEN = 3


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
    #: Whether the change concerns the vendor, or a file that does not exist: such changes are tried
    #: together before all others.
    is_related: bool = False
    #: Whether the experiment takes long, and runs only if it is likely.
    only_if_likely: bool = False

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
    #: The experiments that improve the outcome together, if the time limit ended the search among them.
    suspects: tuple[Experiment, ...] = ()
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
    _suspects: list[Experiment] = field(default_factory=list)
    #: The different failures that experiments led to, by the experiments' names.
    _other_failures: dict[str, Outcome] = field(default_factory=dict)
    #: Whether the program fails differently with all changes, which remove something that it needs.
    _is_needed: bool = False

    def find_first(self, experiments: Sequence[Experiment]) -> Result:
        """Return the first experiment that improves the outcome.

        Use this method for changes that cannot be combined.
        """
        return self._guarded(experiments, lambda: self._try_alone(experiments, None))

    def find_causes(self, experiments: Sequence[Experiment], failed: Outcome) -> Result:
        """Return the experiments that improve `failed`, the outcome of the unchanged program."""
        # Each run of a program that hangs takes its whole time limit.
        repeats = 1 if failed.is_late else _REPEATS
        return self._guarded(
            experiments, lambda: self._causes(experiments, failed), repeats
        )

    def _guarded(
        self,
        experiments: Sequence[Experiment],
        search: Callable[[], list[Experiment]],
        repeats: int = _REPEATS,
    ) -> Result:
        """Return the confirmed result of `search`, if the unchanged program fails `repeats` times more."""
        try:
            self._require_failures(repeats)
            causes = search()
            if causes:
                return self._confirm(causes)
        except _UnstartedError:
            return Result(is_unstarted=True)
        except _FlakyError:
            return Result(tried=tuple(self._tried.values()), is_flaky=True)
        except _OutOfTimeError:
            if self._suspects:
                return Result(suspects=tuple(self._suspects))
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
        """Try experiments until one group improves the outcome, and return the causes.

        First likely experiments run alone, then those that a different failure makes
        likely, then all together, then the rest alone.
        """
        likely = [e for e in experiments if e.is_likely(failed)]
        causes = self._try_alone(likely, failed)
        if not causes:
            causes = self._try_behind(likely, experiments)
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
        if not is_same:
            self._other_failures[experiment.name] = outcome
        # Without something that it needs, a program fails otherwise anyway.
        if is_same or experiment.may_be_needed:
            self._tried.setdefault(experiment.name, experiment)
        else:
            self._altering.setdefault(experiment.name, experiment)

    def _try_behind(
        self, likely: Sequence[Experiment], experiments: Sequence[Experiment]
    ) -> list[Experiment]:
        """Return the causes of failures that hide one another; empty if there are none.

        A change that led to another failure stays applied, and the changes that the
        other failure makes likely are tried in addition.
        """
        for experiment in likely:
            failure = self._other_failures.get(experiment.name)
            if failure is None:
                continue
            causes = self._try_in_addition([experiment], experiments, failure)
            if causes:
                return self._fewest(causes)
        return []

    def _try_in_addition(
        self,
        applied: list[Experiment],
        experiments: Sequence[Experiment],
        failed: Outcome,
    ) -> list[Experiment]:
        """Return the changes that improve the outcome with `applied`, which leads to `failed`."""
        for experiment in experiments:
            if experiment in applied or not experiment.is_likely(failed):
                continue
            self.show(f"{experiment} too")
            changes = [*applied, experiment]
            outcome = self._run_one(changes)
            if self.is_better(outcome):
                return changes
            if _differs(outcome, failed) and len(changes) < _MAX_HIDDEN:
                causes = self._try_in_addition(changes, experiments, outcome)
                if causes:
                    return causes
        return []

    def _try_together(
        self, experiments: Sequence[Experiment], failed: Outcome
    ) -> list[Experiment]:
        """Apply the related changes together, then the harmless ones, then all.

        Returns the causes in the first group that improves the outcome. If the failure is the same with
        all changes, no change is a cause.
        """
        related = [e for e in experiments if e.is_related]
        harmless = [e for e in experiments if not e.may_be_needed]
        groups = [related, harmless]
        if len(harmless) < len(experiments):
            groups.append(list(experiments))
        for group in groups:
            if not group or len(experiments) < 2:
                continue
            self.show(f"{len(group)} changes together")
            outcome = self._run_one(group)
            if self.is_better(outcome):
                return self._fewest(group)
            if group is not related and _differs(outcome, failed):
                self._is_needed = True
        return []

    def _fewest(self, experiments: list[Experiment]) -> list[Experiment]:
        """Return the smallest subset of the experiments that still improves the outcome."""
        while len(experiments) > 1:
            middle = len(experiments) // 2
            first, second = experiments[:middle], experiments[middle:]
            self._suspects = experiments
            self.show(f"which of {len(experiments)} changes")
            better = self._find_better([first, second])
            if better is None:
                return self._causes_in_both(first, second)
            experiments = better
        return experiments

    def _find_better(self, groups: list[list[Experiment]]) -> list[Experiment] | None:
        """Return the first group that improves the outcome, else `None`."""
        for first in range(0, len(groups), self.at_once):
            batch = groups[first : first + self.at_once]
            outcomes = self._run_each([_sum(group) for group in batch])
            for group, outcome in zip(batch, outcomes, strict=True):
                if self.is_better(outcome):
                    return group
        return None

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
