"""Start ranks on this host that connect over gloo, with experiments for ranks that cannot connect."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.sandbox import child
from accel_core.text import one_line
from accel_core.torch_import import import_torch
from accel_tools.doctor.experiments.search import Experiment, fixed_step
from accel_tools.doctor.experiments.trial import NO_CHANGE, Change, Outcome
from accel_train.launch.network import addressed_interfaces

#: The time limit in seconds for the ranks to connect, in addition to the import of torch.
_CONNECT_SECONDS = 10.0
#: Prefixes of variables that torch.distributed and gloo read.
_VARIABLE_PREFIXES = ("GLOO_", "TP_", "TORCH_DISTRIBUTED", "MASTER_")
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
        return _run_rank(job, rank, environ)

    with ThreadPoolExecutor(max_workers=job.rank_count) as pool:
        outcomes = list(pool.map(run_rank, range(job.rank_count)))
    return min(outcomes, key=lambda outcome: len(outcome.imported))


def _free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _run_rank(job: RankJob, rank: int, environ: Mapping[str, str]) -> Outcome:
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
        return subprocess.Popen(command, env=variables, **options)

    timeout = job.import_timeout + _CONNECT_SECONDS
    try:
        report = child.run(connect_in_child, {}, timeout, start=start)
    except OSError as error:
        return Outcome(error=f"its process could not be started: {error}")
    failure = f"its process {report.ending}"
    if report.answer is not None:
        failure = report.answer["error"]
    finished = 0
    if report.stage in _STAGES:
        finished = _STAGES.index(report.stage)
    if not failure:
        finished = len(_STAGES)
    return Outcome(imported=_STAGES[:finished], error=failure, stage=report.stage)


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


def experiments(job: RankJob) -> Iterator[Experiment]:
    """Yield experiments that change variables, network interfaces, or the address of the store."""
    for name, value in sorted(job.environ.items()):
        if name.startswith(_VARIABLE_PREFIXES):
            yield Experiment(
                change=Change(unset_variables=frozenset({name})),
                name=f"{name}={value!r}",
                step=fixed_step(f"unset {name}"),
                is_likely=lambda _outcome: True,
            )
    yield Experiment(
        change=Change(set_variables=(("MASTER_ADDR", "127.0.0.1"),)),
        name=f"the store at 127.0.0.1 instead of {socket.gethostname()}",
        step=fixed_step("for a job on this host alone: export MASTER_ADDR=127.0.0.1"),
        preposition="with",
    )
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
