"""Make DeepSpeed work in one process without a launcher and without mpi4py.

Without a launcher, DeepSpeed gets the rank from MPI, which fails if mpi4py is missing. This module replaces
the function that queries MPI with a function that makes this process the only rank.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Mapping
from typing import Any

from accel_core import is_installed
from accel_core.errors import IntegrationMissingError
from accel_train.launch.launchers import find_launcher, set_torchrun_variables

__all__ = ["COMM_MODULE", "patch_mpi_discovery"]

#: DeepSpeed's module with `init_distributed()`, and the module's function that gets the rank from MPI.
COMM_MODULE = "deepspeed.comm.comm"
_MPI_DISCOVERY = "mpi_discovery"
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def patch_mpi_discovery(comm_module: Any) -> None:
    """Make DeepSpeed's `init_distributed()` start a group of one rank if no launcher started the process.

    `comm_module` is DeepSpeed's module `COMM_MODULE`. If mpi4py is installed, DeepSpeed's behavior does not
    change. Without mpi4py, `init_distributed()` raises `IntegrationMissingError` if this process is one of
    several and lacks variables such as `RANK`. The error names these variables.
    """
    original = getattr(comm_module, _MPI_DISCOVERY, None)
    is_patched = getattr(original, "is_patched_by_accel", False)
    if original is None or is_patched:
        return

    @functools.wraps(original)
    def mpi_discovery(*args: Any, **kwargs: Any) -> Any:
        if is_installed("mpi4py"):
            return original(*args, **kwargs)
        set_torchrun_variables()
        has_all_variables = all(os.environ.get(name) for name in _RANK_VARIABLES)
        if not has_all_variables:
            _require_single_process(os.environ)
            for name, value in _variables_of_only_rank().items():
                os.environ.setdefault(name, value)
        return None

    mpi_discovery.is_patched_by_accel = True  # type: ignore[attr-defined]
    setattr(comm_module, _MPI_DISCOVERY, mpi_discovery)


def _require_single_process(environ: Mapping[str, str]) -> None:
    """Raise `IntegrationMissingError` if a variable shows that this process is one of several."""
    variable = _variable_that_shows_several_processes(environ)
    if variable:
        missing = [name for name in _RANK_VARIABLES if not environ.get(name)]
        raise IntegrationMissingError(
            f"{variable}={environ[variable]} shows that this is one of several processes, but DeepSpeed "
            f"needs {', '.join(missing)} in each process. Next step: start the script with `accel deepspeed` "
            "or torchrun, which set these variables, or install mpi4py, with which DeepSpeed gets the values "
            "from MPI: `pip install mpi4py`."
        )


def _variable_that_shows_several_processes(environ: Mapping[str, str]) -> str:
    """Return the name of a variable that shows that this process is one of several.

    Returns an empty string if none does.
    """
    if environ.get("WORLD_SIZE", "1") not in ("", "1"):
        return "WORLD_SIZE"
    if environ.get("RANK", "0") != "0":
        return "RANK"
    launcher = find_launcher(environ)
    if launcher is None:
        return ""
    return launcher.world_size_variable or launcher.rank_variable


def _variables_of_only_rank() -> dict[str, str]:
    """Return the variables for a job of one rank. The port is free, because this host may run other jobs."""
    # The system chooses a free port for port 0.
    with socket.create_server(("127.0.0.1", 0)) as server:
        _host, port = server.getsockname()
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
