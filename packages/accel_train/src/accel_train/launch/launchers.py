"""Read the rank from the variables of launchers other than torchrun: `mpirun`, `mpiexec`, `srun`."""

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
    "find_launcher",
    "set_torchrun_variables",
    "torchrun_variables",
]


class Launcher(NamedTuple):
    """A launcher, with the names of the environment variables that it sets for each process.

    A name is empty if the launcher does not set such a variable.
    """

    name: str
    #: The variable with the process's rank.
    rank_variable: str
    #: The variable with the number of ranks.
    world_size_variable: str = ""
    #: The variables with the rank's number on its host, and with the number of ranks on that host.
    local_rank_variable: str = ""
    local_world_size_variable: str = ""


#: The launchers, in the order in which their variables are looked up. MPI's variables precede Slurm's: if
#: `mpirun` starts its daemons with `srun`, Slurm's variables contain the daemon's rank.
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
    # SLURM_NTASKS is not used, because Slurm also sets it for a batch script, which is one process.
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    Launcher("PMIx", "PMIX_RANK"),
)

#: The first host in Slurm's form of a list, such as `node01,node02` or `node[01-03,07]-ib`: a name, or a name
#: with numbers and ranges in brackets, of which the first number counts.
_FIRST_HOST = re.compile(
    r"(?P<prefix>[^\[,]*)(?:\[(?P<first_number>[^\],-]*)[^\]]*\])?(?P<suffix>[^\[,]*)"
)
#: torch's default port.
_DEFAULT_PORT = 29500


def find_launcher(environ: Mapping[str, str]) -> Launcher | None:
    """Return the launcher that started this process as one of several ranks, or `None` if no launcher did."""
    for launcher in LAUNCHERS:
        rank = environ.get(launcher.rank_variable)
        if not rank:
            continue
        if launcher.world_size_variable:
            world_size = environ.get(launcher.world_size_variable, "")
            has_peers = world_size not in ("", "1")
        else:
            # Rank 0 may be the only rank, but any other rank has peers.
            has_peers = rank != "0"
        if has_peers:
            return launcher
    return None


def torchrun_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return torchrun's environment variables for this process, derived from another launcher's variables.

    Variables that are already set are left out. The result is empty if `RANK` or `WORLD_SIZE` is set, or if
    no launcher set a rank and a world size. The result includes `MASTER_ADDR` if all ranks are on one host,
    or if Slurm provides the list of hosts.
    """
    if environ.get(RANK.name) or environ.get(WORLD_SIZE.name):
        return {}
    launcher = _launcher_with_size(environ)
    if launcher is None:
        return {}
    variables = {
        RANK.name: environ[launcher.rank_variable],
        WORLD_SIZE.name: environ[launcher.world_size_variable],
        LOCAL_RANK.name: _local_rank(launcher, environ),
        LOCAL_WORLD_SIZE.name: environ.get(launcher.local_world_size_variable, ""),
        MASTER_ADDR.name: _rank_0_address(launcher, environ),
        MASTER_PORT.name: _rank_0_port(environ),
    }
    known_variables = {name: value for name, value in variables.items() if value}
    # Variables that are set already are not replaced.
    return {
        name: value for name, value in known_variables.items() if not environ.get(name)
    }


def _launcher_with_size(environ: Mapping[str, str]) -> Launcher | None:
    """Return the first launcher that set both this process's rank and the number of ranks."""
    for launcher in LAUNCHERS:
        if environ.get(launcher.rank_variable) and environ.get(
            launcher.world_size_variable
        ):
            return launcher
    return None


def set_torchrun_variables() -> None:
    """Set torchrun's variables in this process's environment, derived from another launcher's variables.

    torch, vendor packages and frameworks can then read the rank too.
    """
    os.environ.update(torchrun_variables(os.environ))


def _local_rank(launcher: Launcher, environ: Mapping[str, str]) -> str:
    """Return the rank's number on its host, or an empty string if it is unknown.

    A second launcher's variable may contain the number: `srun --mpi=pmi2` sets MPICH's rank and size, but
    Slurm's local rank. The second launcher's rank and size then equal those of `launcher`.
    """
    rank_and_size = (
        environ[launcher.rank_variable],
        environ[launcher.world_size_variable],
    )
    # If mpirun is started by Slurm, Slurm's variables may be about other processes. Variables with the same
    # rank and size are about the same process.
    for other in LAUNCHERS:
        other_rank_and_size = (
            environ.get(other.rank_variable),
            environ.get(other.world_size_variable),
        )
        local_rank = environ.get(other.local_rank_variable)
        if local_rank and other_rank_and_size == rank_and_size:
            return local_rank
    return ""


def _rank_0_address(launcher: Launcher, environ: Mapping[str, str]) -> str:
    """Return the address of rank 0's host, or an empty string if it is unknown."""
    world_size = environ[launcher.world_size_variable]
    ranks_on_this_host = environ.get(launcher.local_world_size_variable)
    if launcher.name == "Slurm":
        is_one_host = environ.get("SLURM_STEP_NUM_NODES") == "1"
    else:
        is_one_host = world_size in ("1", ranks_on_this_host)
    if is_one_host:
        return "127.0.0.1"
    if launcher.name == "Slurm":
        return _first_host(environ.get("SLURM_STEP_NODELIST", ""))
    return ""


def _first_host(nodes: str) -> str:
    """Return the first host in Slurm's list, such as `"node03"` for `"node[03-05,9],login1"`."""
    match = _FIRST_HOST.match(nodes)
    if match is None:
        return ""
    # For node[03-05,9]-ib, the prefix is node, the first number is 03, and the suffix is -ib.
    parts = match.groupdict(default="")
    return f"{parts['prefix']}{parts['first_number']}{parts['suffix']}"


def _rank_0_port(environ: Mapping[str, str]) -> str:
    """Return the port for rank 0's store.

    Slurm may run several jobs on one host. Therefore the port of a Slurm job depends on the job's number, and
    is between 20000 and 29999.
    """
    job_number = environ.get("SLURM_JOB_ID", "")
    if job_number.isdecimal():
        # Two jobs on one host usually get different ports, from 20000 to 29999.
        return str(20000 + int(job_number) % 10000)
    return str(_DEFAULT_PORT)
