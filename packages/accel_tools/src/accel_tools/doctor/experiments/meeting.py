"""Ranks on this host that meet over gloo, and what keeps them from it."""

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
from accel_tools.doctor.experiments.search import Row
from accel_tools.doctor.experiments.trial import NOTHING, Change, Outcome

#: Seconds for the ranks to find each other, beside the import of torch.
_SECONDS = 10.0
#: Beginnings of variables that torch.distributed and gloo read.
_READ = ("GLOO_", "TP_", "TORCH_DISTRIBUTED", "MASTER_")
_STAGES = ("import of torch", "store", "all_reduce()")


@dataclass(frozen=True)
class Job:
    """Ranks that start here, as a launcher starts them."""

    count: int
    environ: Mapping[str, str]
    #: Seconds for importing torch.
    timeout: float


def run(job: Job, change: Change = NOTHING) -> Outcome:
    """Let the ranks meet at the address that this host's name means, but for the change."""
    place = {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": str(_free_port())}
    environ = change.environment({**job.environ, **place})
    with ThreadPoolExecutor(max_workers=job.count) as pool:
        ranks = pool.map(lambda rank: _rank(job, rank, environ), range(job.count))
    return min(ranks, key=lambda outcome: len(outcome.imported))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


def _rank(job: Job, rank: int, environ: Mapping[str, str]) -> Outcome:
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job.count}
    variables = {**environ, **{name: str(value) for name, value in own.items()}}

    def start(command: list[str], *, env: object, **options: Any) -> Any:
        del env
        return subprocess.Popen(command, env=variables, **options)

    try:
        report = child.run(meet, {}, job.timeout + _SECONDS, start=start)
    except OSError as error:
        return Outcome(error=f"its process could not be started: {error}")
    answer = report.answer or {"error": f"its process {report.ending}"}
    done = _STAGES.index(report.stage) if report.stage in _STAGES else 0
    if not answer["error"]:
        done = len(_STAGES)
    return Outcome(imported=_STAGES[:done], error=answer["error"], stage=report.stage)


def meet(_: dict[str, Any], stage: Callable[[str], None]) -> dict[str, str]:
    """In the child: join the ranks, and add one number of each."""
    from datetime import timedelta

    stage(_STAGES[0])
    torch = import_torch()
    import torch.distributed as distributed

    try:
        stage(_STAGES[1])
        limit = timedelta(seconds=_SECONDS)
        distributed.init_process_group("gloo", timeout=limit)
        stage(_STAGES[2])
        total = torch.ones(1)
        distributed.all_reduce(total)
        if int(total) != distributed.get_world_size():
            return {"error": f"all_reduce() gave {int(total)}"}
    except PLUGIN_ERRORS as error:
        return {"error": one_line(root_cause(error))}
    return {"error": ""}


def rows(job: Job) -> Iterator[Row]:
    """Yield what can be otherwise: variables that are read, interfaces, the store's address."""
    for name, value in sorted(job.environ.items()):
        if name.startswith(_READ):
            yield Row(
                Change(removed=frozenset({name})),
                f"{name}={value!r}",
                _constant(f"unset {name}"),
                lambda _: True,
            )
    for interface in _interfaces():
        setting = f"GLOO_SOCKET_IFNAME={interface}"
        yield Row(
            Change(assigned=(("GLOO_SOCKET_IFNAME", interface),)),
            f"the interface {interface} in place of the one that the name of this host means",
            _constant(f"export {setting}; {_name_in_words()}"),
            how="with",
        )
    yield Row(
        Change(assigned=(("MASTER_ADDR", "127.0.0.1"),)),
        f"the store at 127.0.0.1 in place of {socket.gethostname()}",
        _constant(f"name the host by its address; {_name_in_words()}"),
        how="with",
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


def _name_in_words() -> str:
    """Return what the name of this host means, as a clause."""
    name = socket.gethostname()
    try:
        return f"the name {name} means {socket.gethostbyname(name)}"
    except OSError as error:
        return f"the name {name} means no address: {error.strerror or error}"


def environment() -> dict[str, str]:
    """Return this process's variables without those of a rank."""
    own = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    return {name: value for name, value in os.environ.items() if name not in own}
