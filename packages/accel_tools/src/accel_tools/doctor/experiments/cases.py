"""Failed programs, and the experiments that find the cause of a failure."""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from accel_core import hardware
from accel_core.explain.device_access import permission_step
from accel_core.hardware import bus
from accel_core.hardware.placement import detect_placement
from accel_core.torch_import import AUTOLOAD
from accel_tools.doctor.experiments import process_settings, table, trial
from accel_tools.doctor.experiments.bare_python import find_failed_need
from accel_tools.doctor.experiments.holders import describe_holders
from accel_tools.doctor.experiments.loaded_files import (
    describe_unusual_files,
    hidden_module_experiments,
)
from accel_tools.doctor.experiments.opened_files import (
    describe_locks,
    opened_file_experiments,
)
from accel_tools.doctor.experiments.search import (
    Experiment,
    OutOfTimeError,
    Result,
    Search,
    combine_changes,
)
from accel_tools.doctor.experiments.trial import Outcome, Program

#: The beginning of the paths of POSIX semaphores on Linux (sem_overview(7)).
_SEMAPHORES = "/dev/shm/sem."
#: The number of runs that must fit into the remaining time, if the unchanged program hangs or if it fails.
_MIN_RUNS_IF_HANGING, _MIN_RUNS = 6, 2
#: The time limit of a run if the same program got further with another change, but hangs without a change: a
#: multiple of that run's time, and at least a number of seconds.
_MAX_RATIO_IF_HANGING, _MIN_SECONDS_IF_HANGING = 4, 4.0
#: The maximum number of parallel runs, and of those that compute on devices.
_MAX_PARALLEL, _MAX_PARALLEL_ON_DEVICES = 4, 2
#: The maximum number of changes without effect that a sentence names. The facts name all of them.
_MAX_NAMES = 4


class Phase(enum.Enum):
    """The phase in which a program fails: importing, counting devices, or computing."""

    IMPORT = "import"
    COUNT = "count"
    COMPUTE = "compute"


@dataclass(frozen=True)
class FailedProgram:
    """A program that failed on this machine, its outcome, and the phase in which it failed."""

    program: Program
    outcome: Outcome
    phase: Phase
    #: The name of the backend, or an empty string for torch itself.
    about: str = ""
    #: The expected number of devices, from the hardware and the variables, or `None` if unknown.
    expected: int | None = None

    @property
    def failed_module(self) -> str:
        """Return the module whose import failed, or an empty string if all imports succeeded."""
        return failed_module(self.program, self.outcome)

    def is_better(self, outcome: Outcome) -> bool:
        """Return whether the program gets further with `outcome` than when it failed.

        An import is better if more modules are imported. A device count is better if more devices are
        counted. A computation is better only if it succeeds on at least as many devices as were counted
        before.
        """
        if self.phase is Phase.IMPORT:
            return len(outcome.imported) > len(self.outcome.imported)
        count, count_before = outcome.count or 0, self.outcome.count or 0
        if self.phase is Phase.COUNT:
            return count > count_before
        # A change that only hides the failing device is not an improvement.
        has_enough_devices = count >= max(1, count_before)
        return outcome.is_successful and has_enough_devices

    def describe_success(self, outcome: Outcome) -> str:
        """Return a clause about what succeeds with `outcome`, such as `"this machine shows 1 device"`."""
        if self.phase is Phase.IMPORT:
            return f"`import {self.failed_module}` works"
        if self.phase is Phase.COMPUTE:
            return f"{describe_computed_devices(outcome)} computed"
        count = outcome.count or 0
        return f"this machine shows {count} device{'' if count == 1 else 's'}"


def failed_module(program: Program, outcome: Outcome) -> str:
    """Return the module whose import failed, or an empty string if all imports succeeded."""
    imported_count = len(outcome.imported)
    if imported_count == len(program.modules):
        return ""
    return program.modules[imported_count]


def find_failed_programs(
    program: Program, outcome: Outcome, expected: int | None
) -> Iterator[FailedProgram]:
    """Yield each failure in a program's run as a `FailedProgram`.

    Yields nothing if the program succeeded.

    Args:
        program: The program that ran.
        outcome: The outcome of the run.
        expected: The expected number of devices, or `None` if it is unknown.
    """
    module = failed_module(program, outcome)
    backend = program.verdict.name if program.verdict else ""
    if module:
        about = "" if module == "torch" else backend
        importing_program = replace(program, verdict=None, other_verdicts=())
        yield FailedProgram(importing_program, outcome, Phase.IMPORT, about)
        return
    if expected is not None and outcome.count is not None and outcome.count < expected:
        counting_program = replace(program, counts_only=True)
        yield FailedProgram(counting_program, outcome, Phase.COUNT, backend, expected)
    if outcome.failure:
        yield FailedProgram(program, outcome, Phase.COMPUTE, backend)


def describe_computed_devices(outcome: Outcome) -> str:
    """Describe the devices that computed correct results, such as `"cuda:0 to cuda:7"`.

    If only some devices computed, each of these is named: `"cuda:0 and cuda:2"`.
    """
    names = [device.device for device in outcome.devices if not device.error]
    have_all_computed = len(names) == len(outcome.devices)
    if have_all_computed and len(names) > 2:
        return f"{names[0]} to {names[-1]}"
    return " and ".join(names)


@dataclass(frozen=True)
class Proof:
    """The result of experiments that look for the cause of a failure, as text for the report."""

    #: The proven cause, such as `"without ZAP='on', `import torch` works"`. If no cause is proven, the text
    #: states this, and names the changes without effect.
    text: str
    #: The next step, or an empty string if none is known.
    step: str = ""
    #: All changes without effect, separated by commas.
    tried: str = ""
    #: Whether an experiment has proven the cause.
    is_proven: bool = False
    #: The environment variables without which the program fails in the same way.
    variables_without_effect: frozenset[str] = frozenset()


def find_cause(
    failed_program: FailedProgram, deadline: float, on_experiment: Callable[[str], None]
) -> Proof:
    """Run experiments to find out why a program failed, and return the proof.

    Args:
        failed_program: The program, and the failure to explain.
        deadline: The value of `time.monotonic()` after which no experiment starts.
        on_experiment: A function called with the description of each experiment.
    """
    program = _limit_time(failed_program, deadline)
    proof = _prove_without_torch(failed_program, program, on_experiment)
    if proof is not None:
        return proof
    failed_program, result = _search(failed_program, program, deadline, on_experiment)
    changes = [cause.change for cause in result.causes]
    is_autoload_the_cause = changes == [table.WITHOUT_AUTOLOAD]
    if is_autoload_the_cause:
        proof = _prove_failing_autoload_function(program, deadline, on_experiment)
        if proof is not None:
            return proof
    if failed_program.phase is Phase.COUNT and result.causes:
        on_experiment("a computation on all devices")
        proof = _proof_of_unusable_devices(failed_program, program, result)
        if proof is not None:
            return proof
    return _proof_of_result(failed_program, result)


def _search(
    failed_program: FailedProgram,
    program: Program,
    deadline: float,
    on_experiment: Callable[[str], None],
) -> tuple[FailedProgram, Result]:
    """Search for the changes with which the program succeeds.

    Returns the failed program with the files that it opens, and the result of the search.
    """
    runner = _Runner(failed_program, program, deadline)
    max_parallel = min(hardware.usable_cores(), _MAX_PARALLEL)
    if failed_program.phase is Phase.COMPUTE:
        max_parallel = min(max_parallel, _MAX_PARALLEL_ON_DEVICES)

    def new_search() -> Search:
        return Search(
            run=runner.run,
            is_better=failed_program.is_better,
            deadline=deadline,
            max_parallel=max_parallel,
            on_experiment=on_experiment,
        )

    on_experiment("the same program again")
    try:
        reporting = runner.run(trial.Change(reports_opened_files=True))
    except OutOfTimeError:
        experiments, _ = _experiments_to_try(program, failed_program.outcome)
        return failed_program, Result(untried=tuple(experiments))
    if failed_program.is_better(reporting):
        return failed_program, Result(is_flaky=True)
    failed = replace(failed_program.outcome, opened_files=reporting.opened_files)
    failed_program = replace(failed_program, outcome=failed)
    experiments, slow_experiments = _experiments_to_try(program, failed)
    # The run that reported the files is the only repetition of a program that hangs. Other programs are
    # repeated in parallel too, to find out whether they disturb each other.
    repeated = 1 if failed.is_timed_out else 0
    result = new_search().find_causes(experiments, failed, repeated)
    # Slow experiments are worth their time only where no error tells that they are unlikely.
    has_no_error = failed_program.phase is Phase.COUNT
    has_found_nothing = not result.causes and not result.stops_search
    if slow_experiments and has_no_error and has_found_nothing:
        last_result = new_search().find_first_cause(slow_experiments)
        result = last_result if last_result.causes else result + last_result
    return failed_program, result


def _prove_without_torch(
    failed_program: FailedProgram,
    program: Program,
    on_experiment: Callable[[str], None],
) -> Proof | None:
    """Return the proof that the kernel kills the program, or that a Python without torch fails too."""
    if failed_program.outcome.is_killed:
        on_experiment("the same program again")
        proof = _prove_kill_by_control_group(program)
        if proof is not None:
            return proof
    on_experiment("a Python without torch")
    failed_need = find_failed_need(program.environ, failed_program.outcome)
    if failed_need is None:
        return None
    text = f"even a Python without torch cannot {failed_need.what}"
    return Proof(text, failed_need.step, is_proven=True)


def _proof_of_unusable_devices(
    failed_program: FailedProgram, program: Program, result: Result
) -> Proof | None:
    """Return what is known if a change only adds devices that cannot compute, or `None` if they compute."""
    computing_program = replace(program, counts_only=False)
    outcome = trial.run(computing_program, combine_changes(result.causes))
    if outcome.is_successful:
        return None
    causes = " and ".join(str(cause) for cause in result.causes)
    success = failed_program.describe_success(outcome)
    return Proof(f"{causes}, {success}, but a computation fails: {outcome.failure}")


def _experiments_to_try(
    program: Program, failed: Outcome
) -> tuple[list[Experiment], list[Experiment]]:
    """Return the experiments for a program, and the slow ones that `failed` makes unlikely."""
    experiments: list[Experiment] = []
    slow_experiments: list[Experiment] = []
    for experiment in table.experiments(program):
        if experiment.is_likely(failed) or not (
            experiment.only_if_likely or experiment.is_slow
        ):
            experiments.append(experiment)
        elif experiment.is_slow:
            slow_experiments.append(experiment)
    experiments += opened_file_experiments(program, failed)
    # Hiding a package may help whatever the cause is, so these experiments are the last.
    experiments += hidden_module_experiments(program, failed)
    return experiments, slow_experiments


def _prove_kill_by_control_group(program: Program) -> Proof | None:
    """Return the proof that the kernel kills the program because of a memory limit, or `None`."""
    before = hardware.cgroup_memory_kills()
    outcome = trial.run(program)
    after = hardware.cgroup_memory_kills()
    limit = hardware.cgroup_memory_limit()
    if not outcome.is_killed or after <= before or limit is None:
        return None
    size = f"{limit // 2**20} MiB"
    text = (
        f"the kernel kills the program because of the control group's memory limit, {size}: the "
        f"number of such kills rose from {before} to {after} in one more run"
    )
    step = f"give the container or job more memory than {size}"
    return Proof(text, step, is_proven=True)


def _prove_failing_autoload_function(
    program: Program, deadline: float, on_experiment: Callable[[str], None]
) -> Proof | None:
    """Return the proof that a function called by torch's autoload fails.

    Each function is called alone, without torch's autoload. Returns `None` if all functions succeed, or if
    the deadline passes before a function fails.
    """
    for function in table.autoload_functions():
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            return None
        on_experiment(f"{function.path} by itself")
        first_module = program.modules[:1]  # This is torch.
        modules = (*first_module, function.path)
        timeout = min(program.timeout, seconds_left)
        alone = replace(program, modules=modules, timeout=timeout)
        outcome = trial.run(alone, table.WITHOUT_AUTOLOAD)
        if outcome.is_timed_out and timeout < program.timeout:
            return None  # The run ended at the deadline, which proves nothing.
        if failed_module(alone, outcome) == function.path:
            text = (
                f"{function.path} of {function.distribution}, which torch's autoload calls, "
                f"fails even without the autoload: {outcome.error}"
            )
            name, _, _version = function.distribution.partition(" ")
            step = f"for a program that does not need {name}: export {AUTOLOAD}=0, or pip uninstall {name}"
            return Proof(text, step, is_proven=True)
    return None


@dataclass
class _Runner:
    """A runner of a program that may hang.

    If the unchanged program hangs, and gets further with some change, later runs have a lower time limit.
    """

    failed_program: FailedProgram
    program: Program
    #: The value of `time.monotonic()` at which a run is stopped.
    deadline: float

    def run(self, change: trial.Change) -> Outcome:
        """Run the failed program with a change applied, and return the outcome.

        Raises `OutOfTimeError` if the deadline stops the program before the program's own time limit.
        """
        seconds_left = max(0.0, self.deadline - time.monotonic())
        timeout = min(self.program.timeout, seconds_left)
        outcome = trial.run(replace(self.program, timeout=timeout), change)
        was_stopped_at_deadline = (
            outcome.is_timed_out and timeout < self.program.timeout
        )
        if was_stopped_at_deadline:
            raise OutOfTimeError
        is_hanging = self.failed_program.outcome.is_timed_out
        if is_hanging and self.failed_program.is_better(outcome):
            seconds = max(
                _MIN_SECONDS_IF_HANGING, _MAX_RATIO_IF_HANGING * outcome.seconds
            )
            timeout = min(self.program.timeout, seconds)
            self.program = replace(self.program, timeout=timeout)
        return outcome


def _limit_time(failed_program: FailedProgram, deadline: float) -> Program:
    """Return the program with a time limit that leaves enough time for several runs."""
    is_hanging = failed_program.outcome.is_timed_out
    runs = _MIN_RUNS_IF_HANGING if is_hanging else _MIN_RUNS
    seconds_left = max(1.0, deadline - time.monotonic())
    program = failed_program.program
    return replace(program, timeout=min(program.timeout, seconds_left / runs))


def _proof_of_result(failed_program: FailedProgram, result: Result) -> Proof:
    """Return the proof of the causes in the result of a search, or a proof without a cause."""
    if not result.causes or result.outcome is None:
        return _proof_without_cause(failed_program, result)
    causes = " and ".join(str(cause) for cause in result.causes)
    success = failed_program.describe_success(result.outcome)
    steps = [cause.step(failed_program.outcome) for cause in result.causes]
    unique_steps = dict.fromkeys(steps)
    text = f"{causes}, {success}"
    return Proof(text, "; ".join(unique_steps), is_proven=True)


def _proof_without_cause(failed_program: FailedProgram, result: Result) -> Proof:
    """Return what is known about a failure whose cause the search has not found."""
    clauses = []
    awaited = failed_program.outcome.awaited
    if awaited:
        clauses.append(f"The program waits in {awaited}")
    is_counting = failed_program.phase is Phase.COUNT
    if is_counting and failed_program.outcome.printed:
        # Other failures are reported with what the program printed.
        clauses.append(f"The program printed its {failed_program.outcome.printed}")
    holders = _describe_holders(failed_program)
    if holders:
        clauses.append(holders)
    denied = _denied_nodes(failed_program.program)
    if denied:
        clauses.append(
            f"This process has no permission to open {bus.enumerated(denied)}"
        )
    locks = describe_locks(failed_program.program, failed_program.outcome)
    if locks:
        clauses.append(locks[0].upper() + locks[1:])
    clauses += describe_unusual_files(failed_program.program, failed_program.outcome)
    clauses += describe_unproven(result)
    fixed_settings = process_settings.describe_fixed_settings(failed_program.outcome)
    if fixed_settings:
        clauses.append(f"Not tried: {', '.join(fixed_settings)}")
    tried = ", ".join(str(experiment) for experiment in result.tried)
    step = _step_without_cause(failed_program, denied)
    unset_variables = [experiment.change.unset_variables for experiment in result.tried]
    return Proof(
        ". ".join(clauses),
        step,
        tried,
        variables_without_effect=frozenset().union(*unset_variables),
    )


def _step_without_cause(failed_program: FailedProgram, denied: Sequence[str]) -> str:
    """Return the next step if no cause is proven, or an empty string if none is known.

    `denied` contains the device nodes that this process may not open.
    """
    verdict = failed_program.program.verdict
    if denied and verdict is not None:
        place = detect_placement()
        return permission_step(place, verdict.declaration, denied[0], "/")
    awaited = failed_program.outcome.awaited
    if awaited:
        return step_for_awaited(awaited)
    return ""


def _describe_holders(failed_program: FailedProgram) -> str:
    """Return a clause about other processes that use the backend's devices, or an empty string."""
    verdict = failed_program.program.verdict
    if verdict is None:
        return ""
    nodes = bus.device_nodes(verdict.declaration.hardware.nodes)
    holders = describe_holders(nodes)
    if not holders:
        return ""
    return f"Perhaps only one process at a time can use the device: {holders}"


def step_for_awaited(awaited: str) -> str:
    """Return the next step for a program that waits in a system call, such as `"open() of /tmp/pipe"`."""
    _call, _, target = awaited.partition(" of ")
    if target.startswith(_SEMAPHORES):
        # A process that is killed leaves its semaphores as they are.
        return f"if no running program uses {target}, rm {target}"
    return f"find out why {target} does not respond, or allow more time: --timeout 300"


def _denied_nodes(program: Program) -> tuple[str, ...]:
    """Return the device nodes of the program's backend that this process may not open."""
    if program.verdict is None:
        return ()
    declared = program.verdict.declaration.hardware
    nodes = bus.device_nodes((*declared.nodes, *declared.shared_nodes))
    return tuple(node for node in nodes if not os.access(node, os.R_OK | os.W_OK))


def describe_unproven(result: Result) -> Iterator[str]:
    """Yield clauses about a search that did not prove a cause.

    The clauses state, for example, which changes had no effect and how many were not tried.
    """
    if result.is_flaky:
        yield "Nothing is proven: the unchanged program fails only sometimes"
        return
    if result.start_failure:
        yield f"No experiment ran: {result.start_failure}"
        return
    if result.suspects:
        names = ", ".join(str(experiment) for experiment in result.suspects)
        yield f"The program works with all of these changes, so the cause is among them: {names}"
        yield "The time limit ended the search for the cause: pass --experiment-seconds 300 for more time"
        return
    yield from _clauses_on_experiments(result)


def _clauses_on_experiments(result: Result) -> Iterator[str]:
    """Yield clauses about the experiments that had another effect, that had none, and that were not run."""
    if result.altering:
        names = _list_first_names(result.altering)
        yield f"Changes that lead to a different error, so each may remove one of several causes: {names}"
    if result.tried:
        names = _list_first_names(result.tried)
        yield f"Changes without effect ({len(result.tried)}): {names}"
    if result.untried:
        names = _list_first_names(result.untried)
        count = len(result.untried)
        yield (
            f"No time was left for {count} more experiment{'' if count == 1 else 's'} ({names}): "
            "pass --experiment-seconds 300 for more time"
        )
    if not (result.altering or result.tried or result.untried):
        yield "No experiment applies to this program"


def _list_first_names(experiments: Sequence[Experiment]) -> str:
    """Return the names of at most four experiments, and how many others there are."""
    names = [str(experiment) for experiment in experiments]
    text = ", ".join(names[:_MAX_NAMES])
    others = len(names) - _MAX_NAMES
    if others > 0:
        text += f" and {others} other{'' if others == 1 else 's'}"
    return text
