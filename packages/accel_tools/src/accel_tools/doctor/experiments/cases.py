"""Failed programs, and the experiments that find the cause of a failure."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from accel_core import hardware
from accel_core.hardware import bus
from accel_core.hardware.placement import permission_step, placement
from accel_core.torch_import import AUTOLOAD
from accel_tools.doctor.experiments import table, trial
from accel_tools.doctor.experiments.search import Experiment, Result, Search
from accel_tools.doctor.experiments.trial import Outcome, Program

#: Runs for which there must be time if the unchanged program hangs.
_RUNS_OF_HANGING = 5
#: How long a run may take if the same program with another change has ended: a multiple of the time of
#: that one, and at least so many seconds.
_PATIENCE = 4
_SECONDS_OF_HANGING = 4.0
#: Parallel runs of programs that do not compute on a device.
_MAX_PARALLEL = 4
#: Changes without effect that a sentence names; the facts have all of them.
_MAX_NAMES = 4


class Goal(enum.Enum):
    """The step in which a program fails."""

    IMPORT = "import"
    COUNT = "count"
    COMPUTE = "compute"


@dataclass(frozen=True)
class Case:
    """A program, its outcome on this machine, and the step in which it fails."""

    program: Program
    outcome: Outcome
    goal: Goal
    #: The name of the backend; empty for torch itself.
    about: str = ""
    #: The expected number of devices, from the hardware and the variables; `None` if unknown.
    expected: int | None = None

    @property
    def failed_module(self) -> str:
        """Return the module whose import failed; empty if all modules were imported."""
        return failed_module(self.program, self.outcome)

    def is_better(self, outcome: Outcome) -> bool:
        """Return whether `outcome` reaches the goal, or is closer to the goal than the case's outcome."""
        before = self.outcome
        if self.goal is Goal.IMPORT:
            return len(outcome.imported) > len(before.imported)
        if self.goal is Goal.COUNT:
            return (outcome.count or 0) > (before.count or 0)
        # A change that only hides the failing device is not an improvement.
        return outcome.is_well and (outcome.count or 0) >= (before.count or 1)

    def effect(self, outcome: Outcome) -> str:
        """Return a clause on the program's success, such as `"this machine shows 1 device"`."""
        if self.goal is Goal.IMPORT:
            return f"`import {self.failed_module}` works"
        if self.goal is Goal.COMPUTE:
            return f"{devices_in_words(outcome)} computed"
        count = outcome.count or 0
        return f"this machine shows {count} device{'' if count == 1 else 's'}"


def failed_module(program: Program, outcome: Outcome) -> str:
    """Return the module whose import failed; empty if all modules were imported."""
    done = len(outcome.imported)
    return program.modules[done] if done < len(program.modules) else ""


def find_cases(
    program: Program, outcome: Outcome, expected: int | None
) -> Iterator[Case]:
    """Yield a case for each failure of an outcome; none if the program succeeded.

    `expected` is the expected number of devices; `None` if it is unknown.
    """
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
    """Return the devices that computed correct results, such as `"cuda:0 to cuda:7"`."""
    names = [device.device for device in outcome.devices if not device.error]
    if len(names) > 2 and len(names) == len(outcome.devices):
        return f"{names[0]} to {names[-1]}"
    return " and ".join(names)


@dataclass(frozen=True)
class Proof:
    """Result of the experiments on a case, as text."""

    #: The proven cause, such as `"Proven: without …"`, or a list of what was tried.
    text: str
    #: The next step; empty if none is known.
    step: str = ""
    #: All changes without effect, separated by commas.
    tried: str = ""
    #: Whether an experiment has proven the cause.
    is_proven: bool = False


def investigate(case: Case, end: float, show: Callable[[str], None]) -> Proof:
    """Run experiments on a case, and return their result.

    `end` is the value of `time.monotonic` at which the experiments stop. `show` is called with the
    description of each experiment.
    """
    program = _with_deadline(case, end)
    if "SIGKILL" in case.outcome.error:
        show("the same program again")
        proof = _killed_by_control_group(program)
        if proof is not None:
            return proof
    # Programs that compute at the same time may disturb each other.
    at_once = min(hardware.usable_cores(), _MAX_PARALLEL)
    search = Search(
        run=_Runs(case, program).run,
        is_better=case.is_better,
        end=end,
        at_once=1 if case.goal is Goal.COMPUTE else at_once,
        show=show,
    )
    experiments = [
        experiment
        for experiment in table.experiments(program)
        if not experiment.only_if_likely or experiment.is_likely(case.outcome)
    ]
    result = search.find_causes(experiments, case.outcome)
    if [cause.change for cause in result.causes] == [table.WITHOUT_AUTOLOAD]:
        proof = _failing_extension(program, end, show)
        if proof is not None:
            return proof
    return _proof(case, result)


def _killed_by_control_group(program: Program) -> Proof | None:
    """Return the proof that the kernel kills the program for its use of memory, or `None`."""
    before = hardware.cgroup_memory_kills()
    outcome = trial.run(program)
    after = hardware.cgroup_memory_kills()
    limit = hardware.cgroup_memory_limit()
    if "SIGKILL" not in outcome.error or after <= before or limit is None:
        return None
    size = f"{limit >> 20} MiB"
    text = (
        f"Proven: the control group's memory limit of {size} ended it: its kills for "
        f"memory rose from {before} to {after} in one more run"
    )
    step = f"give the container or job more memory than {size}"
    return Proof(text, step, is_proven=True)


def _failing_extension(
    program: Program, end: float, show: Callable[[str], None]
) -> Proof | None:
    """Return the proof that a package fails which torch's autoload imports, or `None`.

    Each package's entry point is called alone, without torch's autoload.
    """
    for entry, distribution in table.extensions():
        if time.monotonic() >= end:
            return None
        show(f"{entry} by itself")
        alone = replace(program, modules=(*program.modules[:1], entry))
        outcome = trial.run(alone, table.WITHOUT_AUTOLOAD)
        if failed_module(alone, outcome) == entry:
            text = (
                f"Proven: {entry} of {distribution}, which torch's autoload runs, "
                f"fails by itself: {outcome.error}"
            )
            name, _, _ = distribution.partition(" ")
            step = (
                f"repair {name}, or pip uninstall {name}; "
                f"a program that does not need it runs with {AUTOLOAD}=0"
            )
            return Proof(text, step, is_proven=True)
    return None


@dataclass
class _Runs:
    """Runs of a program; once a change makes it end, a run that hangs is stopped soon."""

    case: Case
    program: Program

    def run(self, change: trial.Change) -> Outcome:
        """Run the program with a change."""
        outcome = trial.run(self.program, change)
        if self.case.outcome.is_late and self.case.is_better(outcome):
            enough = max(_SECONDS_OF_HANGING, _PATIENCE * outcome.seconds)
            timeout = min(self.program.timeout, enough)
            self.program = replace(self.program, timeout=timeout)
        return outcome


def _with_deadline(case: Case, end: float) -> Program:
    """Return the program with a time limit that leaves enough time for several runs."""
    runs = _RUNS_OF_HANGING if case.outcome.is_late else 2
    left = max(1.0, end - time.monotonic())
    return replace(case.program, timeout=min(case.program.timeout, left / runs))


def _proof(case: Case, result: Result) -> Proof:
    if result.causes and result.outcome is not None:
        causes = " and ".join(map(str, result.causes))
        text = f"Proven: {causes} {case.effect(result.outcome)}"
        steps = [cause.step(case.outcome) for cause in result.causes]
        return Proof(text, "; and ".join(dict.fromkeys(steps)), is_proven=True)
    clauses = list(not_proven(result))
    denied = _denied_nodes(case.program)
    if denied:
        clauses.insert(0, f"This process may not open {bus.enumerated(denied)}")
    limits = table.untestable(case.outcome)
    if limits:
        clauses.append(f"Could not be tried: {', '.join(limits)}")
    tried = ", ".join(map(str, result.tried))
    step = ""
    if denied and case.program.verdict is not None:
        of_container = placement().step(case.program.verdict.declaration)
        step = permission_step(denied[0], "/", of_container)
    return Proof("; ".join(clauses), step, tried)


def _denied_nodes(program: Program) -> tuple[str, ...]:
    """Return the device nodes of the program's backend that this process may not open."""
    if program.verdict is None:
        return ()
    declared = program.verdict.declaration.hardware
    nodes = bus.device_nodes((*declared.nodes, *declared.shared_nodes))
    return tuple(node for node in nodes if not os.access(node, os.R_OK | os.W_OK))


def not_proven(result: Result) -> Iterator[str]:
    """Yield clauses on experiments without effect and on experiments that did not run."""
    if result.is_flaky:
        yield "Nothing is proven: the unchanged program fails only sometimes"
        return
    if result.is_unstarted:
        yield "No experiment ran: a process could not be started"
        return
    if result.suspects:
        names = ", ".join(map(str, result.suspects))
        yield f"With all of these changes it works; the cause is among them: {names}"
        yield "No time was left to find which: --experiment-seconds 300"
        return
    if result.altering:
        names = _named(result.altering)
        yield f"The error changes {names}: this may be one of several causes"
    if result.tried:
        yield f"Not the cause by itself (tried {len(result.tried)}): {_named(result.tried)}"
    if result.untried:
        yield f"No time was left for {len(result.untried)} more"
    if not (result.altering or result.tried or result.untried):
        yield "There is no experiment to run"


def _named(experiments: Sequence[Experiment]) -> str:
    names = [str(experiment) for experiment in experiments]
    rest = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {rest} others" if rest > 0 else "")
