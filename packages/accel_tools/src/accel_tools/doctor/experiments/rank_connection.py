"""Start ranks on this host that connect over gloo, with experiments for ranks that cannot connect."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import child
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_tools.doctor.experiments.search import Experiment, fixed_step
from accel_tools.doctor.experiments.table import variable_and_setting_experiments
from accel_tools.doctor.experiments.trial import (
    NO_CHANGE,
    Change,
    Outcome,
    Program,
    command_with_settings,
)
from accel_train.launch.network import addressed_interfaces

#: The time limit in seconds for the ranks to connect, in addition to the import of torch.
_CONNECT_SECONDS = 10.0
#: Prefixes of variables that torch.distributed and gloo read.
_VARIABLE_PREFIXES = ("GLOO_", "TP_", "TORCH_DISTRIBUTED")
#: The variables with the address of the store, which `run_ranks` sets.
_STORE_VARIABLES = ("MASTER_ADDR", "MASTER_PORT")
#: The stages of a rank, in order.
_IMPORT, _STORE, _ALL_REDUCE = "import of torch", "store", "all_reduce()"
_STAGES = (_IMPORT, _STORE, _ALL_REDUCE)


@dataclass(frozen=True)
class RankJob:
    """The ranks to start on this host, as a launcher would start them."""

    rank_count: int
    #: The environment variables of all ranks.
    environ: Mapping[str, str]
    #: The time limit for the import of torch in seconds.
    import_timeout: float


def run_ranks(job: RankJob, change: Change = NO_CHANGE) -> Outcome:
    """Start the ranks with a change, and return the outcome of the least successful rank.

    The least successful rank is the one that finished the fewest stages. Without a change, the ranks use a
    store at the address to which this host's name resolves.
    """
    store = {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": str(_free_port())}
    environ = change.apply_to_environment({**job.environ, **store})

    def run_rank(rank: int) -> Outcome:
        return _run_rank(job, rank, environ, change)

    start_time = time.monotonic()
    with ThreadPoolExecutor(max_workers=job.rank_count) as pool:
        outcomes = list(pool.map(run_rank, range(job.rank_count)))
    least_successful = min(outcomes, key=lambda outcome: len(outcome.imported))
    seconds = time.monotonic() - start_time
    has_waited = not least_successful.is_successful and seconds > _CONNECT_SECONDS
    return replace(least_successful, seconds=seconds, is_timed_out=has_waited)


def _free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _run_rank(
    job: RankJob, rank: int, environ: Mapping[str, str], change: Change
) -> Outcome:
    """Run one rank in a child process, and return its outcome.

    The outcome's field `imported` contains the stages that the rank finished.
    """
    variables = {
        **environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(job.rank_count),
    }

    def start(command: list[str], *, env: object, **options: Any) -> Any:
        del env  # The rank's variables are used instead.
        with_settings = command_with_settings(command, change)
        return subprocess.Popen(with_settings, env=variables, **options)

    timeout = job.import_timeout + _CONNECT_SECONDS
    try:
        report = child.run(connect_in_child, {}, timeout, start=start)
    except OSError as error:
        message = f"the rank's process could not be started: {error}"
        return Outcome(error=message, start_failed=True)
    failure = f"its process {report.ending}"
    if report.answer is not None:
        failure = report.answer["error"]
    finished_count = 0
    if not failure:
        finished_count = len(_STAGES)
    elif report.stage in _STAGES:
        # The rank failed in this stage, so it has finished the stages before.
        finished_count = _STAGES.index(report.stage)
    finished = _STAGES[:finished_count]
    return Outcome(imported=finished, error=failure, stage=report.stage)


def connect_in_child(_: dict[str, Any], stage: Callable[[str], None]) -> dict[str, str]:
    """Connect a rank to the other ranks, and sum a number over all ranks.

    Runs in the rank's child process. Returns the error message under the key `error`. The message is an
    empty string on success.
    """
    from datetime import timedelta

    stage(_IMPORT)
    torch = import_torch()
    import torch.distributed as distributed

    try:
        stage(_STORE)
        limit = timedelta(seconds=_CONNECT_SECONDS)
        distributed.init_process_group("gloo", timeout=limit)
        stage(_ALL_REDUCE)
        total = torch.ones(1)
        distributed.all_reduce(total)
        world_size = distributed.get_world_size()
        if int(total) != world_size:
            return {"error": f"all_reduce() returned {int(total)}, not {world_size}"}
    except PLUGIN_ERRORS as error:
        return {"error": one_line(root_cause(error))}
    return {"error": ""}


def experiments(job: RankJob) -> list[Experiment]:
    """Return experiments that change the variables, the process settings, or the address of the store."""
    program = Program(("torch",), job.environ, job.import_timeout)
    found = [_store_experiment()]
    for experiment in variable_and_setting_experiments(program):
        [*names] = experiment.change.unset_variables
        if any(name in _STORE_VARIABLES for name in names):
            continue  # Each run sets them.
        if any(name.startswith(_VARIABLE_PREFIXES) for name in names):
            found.append(replace(experiment, is_likely=_is_always_likely))
        else:
            found.append(experiment)
    return found


def _is_always_likely(_outcome: Outcome) -> bool:
    return True


def _is_store_unreachable(outcome: Outcome) -> bool:
    return outcome.stage == _STORE


def _store_experiment() -> Experiment:
    """Return the experiment with the store at the loopback address instead of the host's address."""
    return Experiment(
        change=Change(set_variables=(("MASTER_ADDR", "127.0.0.1"),)),
        name=f"torch.distributed's store at 127.0.0.1 instead of {socket.gethostname()}",
        step=fixed_step("for a job on this host alone: export MASTER_ADDR=127.0.0.1"),
        is_likely=_is_store_unreachable,
        preposition="with",
    )


def interface_experiments() -> Iterator[Experiment]:
    """Yield an experiment with each network interface, of which gloo uses only one."""
    for interface in addressed_interfaces():
        yield Experiment(
            change=Change(set_variables=(("GLOO_SOCKET_IFNAME", interface),)),
            name=f"the network interface {interface} instead of gloo's default interface",
            step=fixed_step(f"export GLOO_SOCKET_IFNAME={interface}"),
            preposition="with",
        )


def environment_without_rank_variables() -> dict[str, str]:
    """Return this process's environment variables, without those that a launcher sets for a rank."""
    variables = dict(os.environ)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        variables.pop(name, None)
    return variables
