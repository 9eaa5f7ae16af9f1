"""Ranks that another launcher than torchrun started: MPI's `mpirun` and `mpiexec`, and Slurm's `srun`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from accel_train.launch.variables import (
    LOCAL_RANK,
    LOCAL_WORLD_SIZE,
    MASTER_ADDR,
    MASTER_PORT,
    RANK,
    WORLD_SIZE,
)

__all__ = [
    "LAUNCHERS",
    "Launcher",
    "adopt_launcher",
    "launched_by",
    "torchrun_variables",
]


class Launcher(NamedTuple):
    """A launcher, and the variables in which it tells each process its place."""

    name: str
    rank: str
    #: The number of ranks; empty if the launcher does not tell it.
    world_size: str = ""
    #: The rank's number on its host, and how many ranks are there.
    local_rank: str = ""
    local_world_size: str = ""


#: In the order in which they are asked. MPI's own come before Slurm's: where `mpirun` starts its daemons with
#: `srun`, Slurm's variables tell the daemon's place.
LAUNCHERS = (
    Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    Launcher(
        "MVAPICH",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
    Launcher(
        "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
    ),  # and Intel MPI
    # Not SLURM_NTASKS, which a batch script has too, although it is one process.
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    Launcher("PMIx", "PMIX_RANK"),
)

#: The port of a job whose launcher has no number for it: torch's own default.
_PORT = 29500


def launched_by(environ: Mapping[str, str]) -> Launcher | None:
    """Return the launcher that made this process one of several ranks; `None` if there is none."""
    for launcher in LAUNCHERS:
        if not environ.get(launcher.rank):
            continue
        size = environ.get(launcher.world_size, "")
        if size and size != "1":
            return launcher
        # Without a size only a later rank is known to have others.
        if not launcher.world_size and environ[launcher.rank] != "0":
            return launcher
    return None


def torchrun_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return this process's place as torchrun's variables, as far as another launcher tells it.

    The result is empty where `RANK` or `WORLD_SIZE` is set, or no launcher's variables are. `MASTER_ADDR` is
    there if all ranks are on one host, or Slurm names the hosts.
    """
    if environ.get(RANK.name) or environ.get(WORLD_SIZE.name):
        return {}
    for launcher in LAUNCHERS:
        if environ.get(launcher.rank) and environ.get(launcher.world_size):
            break
    else:
        return {}
    variables = {
        RANK.name: environ[launcher.rank],
        WORLD_SIZE.name: environ[launcher.world_size],
        LOCAL_RANK.name: _local_rank(launcher, environ),
        LOCAL_WORLD_SIZE.name: environ.get(launcher.local_world_size, ""),
        MASTER_ADDR.name: _address(launcher, environ),
        MASTER_PORT.name: _port(environ),
    }
    return {
        name: value
        for name, value in variables.items()
        if value and not environ.get(name)
    }


def adopt_launcher() -> None:
    """Set torchrun's variables in this process from those of another launcher that started it.

    So torch, the vendors' packages and the frameworks know the rank too.
    """
    os.environ.update(torchrun_variables(os.environ))


def _local_rank(launcher: Launcher, environ: Mapping[str, str]) -> str:
    """Return the rank's number on its host; empty if it is not known.

    `srun --mpi=pmi2` sets MPICH's rank and size, and the number on the host in Slurm's own variable.
    """
    place = (environ[launcher.rank], environ[launcher.world_size])
    for other in LAUNCHERS:
        if (environ.get(other.rank), environ.get(other.world_size)) != place:
            continue
        local_rank = environ.get(other.local_rank)
        if local_rank:
            return local_rank
    return ""


def _address(launcher: Launcher, environ: Mapping[str, str]) -> str:
    """Return the address of rank 0's host; empty if it is not known."""
    world_size = environ[launcher.world_size]
    is_one_host = environ.get(launcher.local_world_size) == world_size
    if launcher.name != "Slurm":
        return "127.0.0.1" if is_one_host or world_size == "1" else ""
    if environ.get("SLURM_STEP_NUM_NODES") == "1":
        return "127.0.0.1"
    return _first_host(environ.get("SLURM_STEP_NODELIST", ""))


def _first_host(nodes: str) -> str:
    """Return the first host of Slurm's list, such as `"node[03-05,9],login1"`."""
    match = re.match(r"([^\[,]*)(?:\[([^\],-]*)[^\]]*\])?([^\[,]*)", nodes)
    return "".join(part or "" for part in match.groups()) if match else ""


def _port(environ: Mapping[str, str]) -> str:
    """Return the port of rank 0's store: by the number of Slurm's job, as hosts may have several jobs."""
    job = environ.get("SLURM_JOB_ID", "")
    return str(20000 + int(job) % 10000) if job.isdecimal() else str(_PORT)
