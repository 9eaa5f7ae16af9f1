"""Find the changes with which a failing program succeeds.

`table` creates the changes. Nothing is concluded from a program that fails only sometimes: the
unchanged program must fail three times, and a proof is confirmed by running the program once
more without the change and once more with it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from accel_tools.doctor.experiments.trial import NO_CHANGE, Change, Outcome

#: How often the unchanged program must fail again, by default, before a change is tried.
_REPEATS = 2
#: How many changes are combined at most, if each change only uncovers the next failure.
_MAX_COMBINED = 3

#: How many likely changes to a program that hangs are tried alone before several are tried together: each
#: run of such a program takes its whole time limit.
_MAX_ALONE_IF_HANGING = 1

T = TypeVar("T")


def _ignore(_description: str) -> None:
    """Show no progress."""


def _is_unlikely(_outcome: Outcome) -> bool:
    return False


@dataclass(frozen=True)
class Experiment:
    """A change to a failing program, and the next step if the program succeeds with the change."""

    change: Change
    #: The human-readable name, such as `"LD_PRELOAD='/opt/x.so'"`, which follows `preposition`.
    name: str
    #: A function that gets the outcome without the change, and returns the next step if the change
    #: is the cause.
    step: Callable[[Outcome], str]
    #: A function that gets the outcome without the change, and returns whether this outcome suggests that
    #: the change is the cause. Likely experiments run first.
    is_likely: Callable[[Outcome], bool] = field(default=_is_unlikely)
    #: The word or words before the name.
    preposition: str = "without"
    #: Whether the change may remove something that the program needs, such as a toolkit's folder.
    may_be_needed: bool = False
    #: Whether the change concerns the vendor, or a file that does not exist. Such changes are tried
    #: together before all others.
    is_related: bool = False
    #: Whether the experiment runs only if it is likely.
    only_if_likely: bool = False
    #: Whether the experiment takes as long as many others. If it is not likely, it runs last, and alone.
    is_slow: bool = False

    def __str__(self) -> str:
        return f"{self.preposition} {self.name}"


def fixed_step(step: str) -> Callable[[Outcome], str]:
    """Return a function for `Experiment.step` that always returns `step`."""
    return lambda _outcome: step


def failure_matches(pattern: str) -> Callable[[Outcome], bool]:
    """Return a function for `Experiment.is_likely` that searches the failure for `pattern`."""
    return lambda outcome: outcome.matches(pattern)


@dataclass(frozen=True)
class Result:
    """The result of a search for the cause of a program's failure."""

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
    #: Experiments that improve the outcome together, if the time limit was reached before the search
    #: found out which of them are necessary.
    suspects: tuple[Experiment, ...] = ()
    #: Whether the unchanged program fails only sometimes.
    is_flaky: bool = False
    #: Why a process could not be started, so that the experiments prove nothing. Otherwise, an empty string.
    start_failure: str = ""

    @property
    def stops_search(self) -> bool:
        """Return whether further experiments could prove nothing."""
        is_out_of_time = bool(self.suspects or self.untried)
        return self.is_flaky or bool(self.start_failure) or is_out_of_time

    def __add__(self, other: Result) -> Result:
        """Return one result of two searches that found no cause."""
        return Result(
            tried=self.tried + other.tried,
            altering=self.altering + other.altering,
            untried=self.untried + other.untried,
            is_flaky=other.is_flaky,
            start_failure=other.start_failure,
        )


class _FlakyError(Exception):
    """The same program fails in some runs and succeeds in other runs."""


class OutOfTimeError(Exception):
    """The time limit for all experiments was reached, so that a run would prove nothing."""


class _StartFailedError(Exception):
    """A process could not be started."""


@dataclass
class Search:
    """A search for the changes that make a failing program succeed.

    The search runs the program repeatedly.
    """

    #: A function that runs the program once, with a change. It raises `OutOfTimeError` if it stops the
    #: program at the deadline of the search.
    run: Callable[[Change], Outcome]
    #: A function that returns whether an outcome is better than that of the unchanged program.
    is_better: Callable[[Outcome], bool]
    #: The value of `time.monotonic` after which no run starts.
    deadline: float
    #: How often the unchanged program must fail again before a change is tried.
    repeats: int = _REPEATS
    #: The maximum number of parallel runs.
    max_parallel: int = 1
    #: A function called with the description of each experiment that begins.
    on_experiment: Callable[[str], None] = _ignore
    #: The experiments that ran, by name: without effect, and with a different failure.
    _tried: dict[str, Experiment] = field(default_factory=dict)
    _altering: dict[str, Experiment] = field(default_factory=dict)
    _suspects: list[Experiment] = field(default_factory=list)
    #: The outcomes with a different failure, by the experiments' names.
    _different_failures: dict[str, Outcome] = field(default_factory=dict)

    def find_first_cause(self, experiments: Sequence[Experiment]) -> Result:
        """Try the experiments one by one until one improves the outcome, and return the result.

        Use this method for changes that cannot be combined, and for programs that take long to fail: the
        unchanged program runs only once more before the experiments.
        """

        def search(_outcomes: list[Outcome]) -> list[Experiment]:
            return self._try_each(experiments, failed=None)

        return self._search_and_confirm(experiments, search, repeats=1)

    def find_causes(
        self, experiments: Sequence[Experiment], failed: Outcome, repeated: int = 0
    ) -> Result:
        """Find the experiments that together make a failing program succeed, and return the result.

        `failed` is the outcome of the unchanged program, and `repeated` is how often it has failed again.
        """

        def search(outcomes: list[Outcome]) -> list[Experiment]:
            if any(_is_different_failure(outcome, failed) for outcome in outcomes):
                # Programs that run at the same time may disturb each other.
                self.max_parallel = 1
            return self._search_causes(experiments, failed)

        # Each run of a program that hangs takes its whole time limit.
        repeats = 1 if failed.is_timed_out else self.repeats
        repeats = max(0, repeats - repeated)
        return self._search_and_confirm(experiments, search, repeats)

    def _search_and_confirm(
        self,
        experiments: Sequence[Experiment],
        search: Callable[[list[Outcome]], list[Experiment]],
        repeats: int,
    ) -> Result:
        """Call `search` if the unchanged program fails `repeats` more times, and confirm the causes.

        `search` gets the outcomes of these runs.
        """
        try:
            outcomes = self._require_unchanged_program_fails(repeats)
            causes = search(outcomes)
            if causes:
                return self._confirm(causes)
        except _StartFailedError as failure:
            return Result(start_failure=str(failure))
        except _FlakyError:
            return Result(tried=tuple(self._tried.values()), is_flaky=True)
        except OutOfTimeError:
            return self._result_at_deadline(experiments)
        return self._result_without_cause(tried=experiments)

    def _result_at_deadline(self, experiments: Sequence[Experiment]) -> Result:
        if self._suspects:
            return Result(suspects=tuple(self._suspects))
        untried = []
        for experiment in experiments:
            name = experiment.name
            if name not in self._tried and name not in self._altering:
                untried.append(experiment)
        return self._result_without_cause(self._tried.values(), untried)

    def _result_without_cause(
        self, tried: Iterable[Experiment], untried: Iterable[Experiment] = ()
    ) -> Result:
        """Return a result without a cause, with experiments that alter the failure listed separately."""
        without_effect = []
        for experiment in tried:
            if experiment.name not in self._altering:
                without_effect.append(experiment)
        return Result(
            tried=tuple(without_effect),
            altering=tuple(self._altering.values()),
            untried=tuple(untried),
        )

    def _search_causes(
        self, experiments: Sequence[Experiment], failed: Outcome
    ) -> list[Experiment]:
        """Return the experiments whose changes together improve the outcome, or an empty list.

        The most promising experiments run first: each likely experiment alone, then combinations if
        a change uncovers a different failure, then all experiments together, then parts of them.
        If the program hangs, only one likely experiment runs alone before the groups.
        """
        likely = _likely_alone(experiments, failed)
        causes = self._try_each(likely, failed)
        if not causes:
            causes = self._try_combinations(likely, experiments)
        if not causes and len(experiments) > 1:
            causes = self._try_together(experiments, failed)
        if not causes and len(experiments) == 1 and not likely:
            causes = self._try_each(experiments, failed)
        return causes

    def _require_unchanged_program_fails(self, runs: int) -> list[Outcome]:
        """Run the unchanged program `runs` times, and return the outcomes.

        Raises `_FlakyError` if the program succeeds in one of the runs.
        """
        self.on_experiment("the same program again")
        outcomes = self._run_each([NO_CHANGE] * runs)
        for outcome in outcomes:
            if self.is_better(outcome):
                raise _FlakyError
        return outcomes

    def _try_each(
        self, experiments: Sequence[Experiment], failed: Outcome | None
    ) -> list[Experiment]:
        """Try each experiment alone until one improves the outcome, and return it as a list.

        The list is empty if no experiment improves the outcome. An experiment that leads to a failure
        other than `failed` is recorded in `_altering`.
        """
        for batch in _batches(experiments, self.max_parallel):
            self.on_experiment(str(batch[0]))
            outcomes = self._run_each([experiment.change for experiment in batch])
            for experiment, outcome in zip(batch, outcomes, strict=True):
                self._record_effect(experiment, outcome, failed)
                if self.is_better(outcome):
                    return [experiment]
        return []

    def _record_effect(
        self, experiment: Experiment, outcome: Outcome, failed: Outcome | None
    ) -> None:
        """Record the experiment in `_altering` if it alters the failure, otherwise in `_tried`."""
        alters_failure = failed is not None and _is_different_failure(outcome, failed)
        if alters_failure:
            self._different_failures[experiment.name] = outcome
        # A program without something that it needs fails differently in any case.
        if alters_failure and not experiment.may_be_needed:
            self._altering.setdefault(experiment.name, experiment)
        else:
            self._tried.setdefault(experiment.name, experiment)

    def _try_combinations(
        self, likely: Sequence[Experiment], experiments: Sequence[Experiment]
    ) -> list[Experiment]:
        """Return the causes of a program that has several failures, each of which hides the next one.

        Each likely experiment that led to a different failure is combined with the experiments that
        are likely for that failure. The list is empty if no combination improves the outcome.
        """
        for experiment in likely:
            next_failure = self._different_failures.get(experiment.name)
            if next_failure is None:
                continue
            causes = self._extend_combination([experiment], experiments, next_failure)
            if causes:
                return self._minimize(causes)
        return []

    def _extend_combination(
        self,
        applied: list[Experiment],
        experiments: Sequence[Experiment],
        failed: Outcome,
    ) -> list[Experiment]:
        """Return `applied` with more experiments, such that all together improve the outcome.

        The list is empty if there is no such combination of at most three experiments. `failed` is the
        outcome with the changes of `applied`.
        """
        for experiment in experiments:
            if experiment in applied or not experiment.is_likely(failed):
                continue
            self.on_experiment(f"{experiment} too")
            combination = [*applied, experiment]
            outcome = self._run_with_all(combination)
            if self.is_better(outcome):
                return combination
            # A different failure shows that the change has an effect, but that it is not enough.
            is_progress = _is_different_failure(outcome, failed)
            if is_progress and len(combination) < _MAX_COMBINED:
                causes = self._extend_combination(combination, experiments, outcome)
                if causes:
                    return causes
        return []

    def _try_together(
        self, experiments: Sequence[Experiment], failed: Outcome
    ) -> list[Experiment]:
        """Apply the related and likely changes together, then the harmless ones, then all.

        Returns the causes in the first group that improves the outcome. If the failure is the same with all
        changes of a group, none of them is a cause. If the failure differs, a change may remove something
        that the program needs, so parts of the group are tried.
        """
        related = [e for e in experiments if e.is_related or e.is_likely(failed)]
        harmless = [e for e in experiments if not e.may_be_needed]
        others = [e for e in experiments if e.may_be_needed]
        groups: list[list[Experiment]] = []
        for group in (related, harmless, list(experiments)):
            if group and group not in groups:
                groups.append(group)
        causes, different = self._try_groups(groups, failed)
        if not causes and harmless in different:
            causes = self._search_halves(harmless, failed)
        if not causes and others and list(experiments) in different:
            causes = self._search_parts([others], failed)
        return causes

    def _try_groups(
        self, groups: Sequence[list[Experiment]], failed: Outcome
    ) -> tuple[list[Experiment], list[list[Experiment]]]:
        """Apply the changes of each group together.

        Returns the causes in the first group that improves the outcome, and the groups that lead to a
        different failure. If the failure is the same, no experiment of the group is a cause.
        """
        different: list[list[Experiment]] = []
        for batch in _batches(groups, self.max_parallel):
            self.on_experiment(f"{len(batch[0])} changes together")
            outcomes = self._run_each([combine_changes(group) for group in batch])
            for group, outcome in zip(batch, outcomes, strict=True):
                if self.is_better(outcome):
                    return self._minimize(group), different
                if self._record_group(group, outcome, failed):
                    different.append(group)
        return [], different

    def _record_group(
        self, group: list[Experiment], outcome: Outcome, failed: Outcome
    ) -> bool:
        """Return whether a group leads to a different failure; otherwise record its experiments as tried."""
        if _is_different_failure(outcome, failed):
            return True
        for experiment in group:
            self._tried.setdefault(experiment.name, experiment)
        return False

    def _search_halves(
        self, group: list[Experiment], failed: Outcome
    ) -> list[Experiment]:
        """Return the causes in one half of a group that leads to a different failure."""
        if len(group) > 1:
            return self._search_parts(_halves(group), failed)
        [experiment] = group
        if not experiment.may_be_needed:
            self._altering.setdefault(experiment.name, experiment)
        return []

    def _search_parts(
        self, parts: Sequence[list[Experiment]], failed: Outcome
    ) -> list[Experiment]:
        """Return the causes in the first of the parts that improves the outcome.

        A part whose changes lead to a different failure is divided further.
        """
        unknown = [part for part in parts if part and not self._was_tried_alone(part)]
        causes, different = self._try_groups(unknown, failed)
        for part in different:
            if not causes:
                causes = self._search_halves(part, failed)
        return causes

    def _minimize(self, experiments: list[Experiment]) -> list[Experiment]:
        """Return experiments that together still improve the outcome, and of which each is necessary."""
        while len(experiments) > 1:
            first_half, second_half = _halves(experiments)
            self._suspects = experiments
            self.on_experiment(f"which of {len(experiments)} changes")
            better_half = self._find_better([first_half, second_half])
            if better_half is None:  # Changes of both halves are needed.
                return self._minimize_both(first_half, second_half)
            experiments = better_half
        return experiments

    def _find_better(self, groups: list[list[Experiment]]) -> list[Experiment] | None:
        """Return the first group that improves the outcome, or `None`."""
        unknown = [group for group in groups if not self._was_tried_alone(group)]
        for batch in _batches(unknown, self.max_parallel):
            outcomes = self._run_each([combine_changes(group) for group in batch])
            for group, outcome in zip(batch, outcomes, strict=True):
                if self.is_better(outcome):
                    return group
        return None

    def _was_tried_alone(self, group: Sequence[Experiment]) -> bool:
        """Return whether the group is one experiment that was tried alone without success."""
        if len(group) != 1:
            return False
        name = group[0].name
        return name in self._tried or name in self._altering

    def _minimize_both(
        self, first: list[Experiment], second: list[Experiment]
    ) -> list[Experiment]:
        """Return experiments from both halves that together improve the outcome.

        Each of them is necessary.
        """
        # This is Junker's algorithm QuickXplain: one half is minimized while the other half is applied.
        needed_of_second = self._minimize_addition(
            applied=first, last_added=first, experiments=second
        )
        needed_of_first = self._minimize_addition(
            applied=needed_of_second, last_added=needed_of_second, experiments=first
        )
        return [*needed_of_first, *needed_of_second]

    def _minimize_addition(
        self,
        applied: list[Experiment],
        last_added: list[Experiment],
        experiments: list[Experiment],
    ) -> list[Experiment]:
        """Return those of `experiments` that are necessary, in addition to `applied`, to improve the outcome.

        Args:
            applied: The experiments whose changes are applied in every run.
            last_added: The experiments that the caller added to `applied`. If the list is empty,
                `applied` alone has already been tried.
            experiments: The experiments of which a subset is needed.
        """
        if last_added and not self._was_tried_alone(applied):
            self.on_experiment(f"which of {len(experiments)} changes")
            if self.is_better(self._run_with_all(applied)):
                return []  # The applied changes are enough.
        if len(experiments) == 1:
            return experiments
        first, second = _halves(experiments)
        needed_of_second = self._minimize_addition(
            applied=[*applied, *first], last_added=first, experiments=second
        )
        needed_of_first = self._minimize_addition(
            applied=[*applied, *needed_of_second],
            last_added=needed_of_second,
            experiments=first,
        )
        return [*needed_of_first, *needed_of_second]

    def _confirm(self, causes: list[Experiment]) -> Result:
        """Confirm that the program fails without the changes of all causes, and succeeds with them.

        If there are several causes, the program must also fail without the change of each cause.
        Raises `_FlakyError` if an outcome differs from the expected outcome.
        """
        self._require_unchanged_program_fails(runs=1)
        if len(causes) > 1:
            for cause in causes:
                # Each change is needed only if the program fails without it.
                other_causes = [other for other in causes if other is not cause]
                if self.is_better(self._run_with_all(other_causes)):
                    raise _FlakyError
        outcome = self._run_with_all(causes)
        if not self.is_better(outcome):
            raise _FlakyError
        return Result(tuple(causes), outcome)

    def _run_with_all(self, experiments: Iterable[Experiment]) -> Outcome:
        """Run the program once with the changes of all experiments, and return the outcome."""
        [outcome] = self._run_each([combine_changes(experiments)])
        return outcome

    def _run_each(self, changes: Sequence[Change]) -> list[Outcome]:
        """Run the program once per change, and return the outcomes.

        Raises `OutOfTimeError` at the deadline, and `_StartFailedError` if a process cannot be
        started.
        """
        outcomes: list[Outcome] = []
        for batch in _batches(changes, self.max_parallel):
            if time.monotonic() >= self.deadline:
                raise OutOfTimeError
            outcomes += self._run_in_parallel(batch)
        for outcome in outcomes:
            if outcome.start_failed:
                raise _StartFailedError(outcome.error)
        return outcomes

    def _run_in_parallel(self, changes: Sequence[Change]) -> list[Outcome]:
        try:
            with ThreadPoolExecutor(max_workers=len(changes)) as pool:
                return list(pool.map(self.run, changes))
        except RuntimeError:  # No thread can be started.
            return [self.run(change) for change in changes]


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in order, in groups of at most `size` items."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _likely_alone(
    experiments: Sequence[Experiment], failed: Outcome
) -> list[Experiment]:
    """Return the likely experiments to try alone: all of them, or one if the program hangs."""
    likely = [experiment for experiment in experiments if experiment.is_likely(failed)]
    if failed.is_timed_out:
        return likely[:_MAX_ALONE_IF_HANGING]
    return likely


def _halves(
    experiments: list[Experiment],
) -> tuple[list[Experiment], list[Experiment]]:
    middle = len(experiments) // 2
    return experiments[:middle], experiments[middle:]


def _is_different_failure(outcome: Outcome, other: Outcome) -> bool:
    """Return whether two programs fail with different errors, or at different steps.

    Numbers in errors are ignored, because addresses and other numbers differ from run to run. The result is
    False if `other` has not failed, for example because it only counted too few devices.
    """
    if not other.failure:
        return False
    if outcome.progress != other.progress:
        return True
    return _remove_numbers(outcome.failure) != _remove_numbers(other.failure)


def _remove_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+|\d+", "", text)


def combine_changes(experiments: Iterable[Experiment]) -> Change:
    """Return one change that combines the changes of all experiments."""
    combined = NO_CHANGE
    for experiment in experiments:
        combined = combined + experiment.change
    return combined
