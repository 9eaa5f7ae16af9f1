"""Connect ranks on this host over gloo, and experiment on the cause if this fails."""

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
from accel_tools.doctor.experiments.search import Experiment
from accel_tools.doctor.experiments.trial import NOTHING, Change, Outcome

#: The time limit in seconds for the ranks to connect, in addition to the import of torch.
_MEETING_SECONDS = 10.0
#: Prefixes of variables that torch.distributed and gloo read.
_VARIABLE_PREFIXES = ("GLOO_", "TP_", "TORCH_DISTRIBUTED", "MASTER_")
_STAGES = ("import of torch", "store", "all_reduce()")


@dataclass(frozen=True)
class Job:
    """The ranks to start on this host, as a launcher would start them."""

    #: The number of ranks.
    count: int
    environ: Mapping[str, str]
    #: The time limit for the import of torch in seconds.
    timeout: float


def run(job: Job, change: Change = NOTHING) -> Outcome:
    """Connect the ranks with a change, and return the outcome of the rank with the least progress.

    Without a change, the ranks use a store at the address to which this host's name resolves.
    """
    store = {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": str(_free_port())}
    environ = change.environment({**job.environ, **store})
    with ThreadPoolExecutor(max_workers=job.count) as pool:
        outcomes = pool.map(
            lambda rank: _run_rank(job, rank, environ), range(job.count)
        )
    return min(outcomes, key=lambda outcome: len(outcome.imported))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _run_rank(job: Job, rank: int, environ: Mapping[str, str]) -> Outcome:
    """Run one rank in a child process; the outcome's `imported` lists the finished stages."""
    variables = {
        **environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(job.count),
    }

    def start(command: list[str], *, env: object, **options: Any) -> Any:
        del env  # the ranks have their own variables
        return subprocess.Popen(command, env=variables, **options)

    try:
        report = child.run(meet, {}, job.timeout + _MEETING_SECONDS, start=start)
    except OSError as error:
        return Outcome(error=f"its process could not be started: {error}")
    answer = report.answer or {"error": f"its process {report.ending}"}
    done = _STAGES.index(report.stage) if report.stage in _STAGES else 0
    if not answer["error"]:
        done = len(_STAGES)
    return Outcome(imported=_STAGES[:done], error=answer["error"], stage=report.stage)


def meet(_: dict[str, Any], stage: Callable[[str], None]) -> dict[str, str]:
    """Join the other ranks, and sum a number over all ranks; runs in the child process of a rank.

    Returns the error message under the key `error`; it is empty on success.
    """
    from datetime import timedelta

    stage(_STAGES[0])
    torch = import_torch()
    import torch.distributed as distributed

    try:
        stage(_STAGES[1])
        limit = timedelta(seconds=_MEETING_SECONDS)
        distributed.init_process_group("gloo", timeout=limit)
        stage(_STAGES[2])
        total = torch.ones(1)
        distributed.all_reduce(total)
        if int(total) != distributed.get_world_size():
            return {"error": f"all_reduce() gave {int(total)}"}
    except PLUGIN_ERRORS as error:
        return {"error": one_line(root_cause(error))}
    return {"error": ""}


def experiments(job: Job) -> Iterator[Experiment]:
    """Yield experiments with variables, network interfaces and the store's address."""
    for name, value in sorted(job.environ.items()):
        if name.startswith(_VARIABLE_PREFIXES):
            yield Experiment(
                Change(removed=frozenset({name})),
                f"{name}={value!r}",
                _constant(f"unset {name}"),
                lambda _: True,
            )
    for interface in _interfaces():
        setting = f"GLOO_SOCKET_IFNAME={interface}"
        yield Experiment(
            Change(assigned=(("GLOO_SOCKET_IFNAME", interface),)),
            f"the interface {interface} instead of the one of this host's name",
            _constant(f"export {setting}; {_name_resolution()}"),
            preposition="with",
        )
    yield Experiment(
        Change(assigned=(("MASTER_ADDR", "127.0.0.1"),)),
        f"the store at 127.0.0.1 instead of {socket.gethostname()}",
        _constant(f"refer to the host by its address; {_name_resolution()}"),
        preposition="with",
    )


def _constant(step: str) -> Callable[[Outcome], str]:
    return lambda _outcome: step


def _interfaces() -> list[str]:
    """Return the network interfaces, loopback first."""
    try:
        names = [name for _, name in socket.if_nameindex()]
    except (AttributeError, OSError):
        return []
    return sorted(names, key=lambda name: name != "lo")


def _name_resolution() -> str:
    """Return a clause on the address to which this host's name resolves."""
    name = socket.gethostname()
    try:
        return f"the name {name} resolves to {socket.gethostbyname(name)}"
    except OSError as error:
        return f"the name {name} cannot be resolved: {error.strerror or error}"


def environment_without_rank() -> dict[str, str]:
    """Return this process's environment variables without the variables of a rank."""
    of_rank = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    return {name: value for name, value in os.environ.items() if name not in of_rank}
