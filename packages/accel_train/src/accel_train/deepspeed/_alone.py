"""DeepSpeed in one process without a launcher: it asks MPI for the ranks, and fails if mpi4py is missing."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Mapping
from typing import Any

from accel_core import is_installed
from accel_core.errors import IntegrationMissingError
from accel_train.launch.launchers import adopt_launcher, launched_by

__all__ = ["COMM", "serve"]

#: Where DeepSpeed's `init_distributed()` is, and the function that it calls to ask MPI.
COMM = "deepspeed.comm.comm"
_ASKS_MPI = "mpi_discovery"
_NEEDED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def serve(module: Any) -> None:
    """Make `init_distributed()` of DeepSpeed's `module` start a group of one rank if no launcher is set.

    If mpi4py is installed, DeepSpeed works as before. If it is not installed and a launcher's variable names
    several processes, the error says what is missing instead of "No module named 'mpi4py'".
    """
    theirs = getattr(module, _ASKS_MPI, None)
    if theirs is None or getattr(theirs, "serves_one", False):
        return

    @functools.wraps(theirs)
    def asked(*args: Any, **kwargs: Any) -> Any:
        if is_installed("mpi4py"):
            return theirs(*args, **kwargs)
        adopt_launcher()
        if all(os.environ.get(name) for name in _NEEDED):
            return None
        _require_alone(os.environ)
        for name, value in _alone().items():
            os.environ.setdefault(name, value)
        return None

    asked.serves_one = True  # type: ignore[attr-defined]
    setattr(module, _ASKS_MPI, asked)


def _require_alone(environ: Mapping[str, str]) -> None:
    several = _sign_of_others(environ)
    if several:
        missing = [name for name in _NEEDED if name not in environ]
        raise IntegrationMissingError(
            f"{several}={environ[several]} says that this is one of several processes, and DeepSpeed needs "
            f"{', '.join(missing)} in each. Start it with `accel deepspeed` or torchrun, which set them, or "
            "let DeepSpeed ask MPI: `pip install mpi4py`."
        )


def _sign_of_others(environ: Mapping[str, str]) -> str:
    """Return the variable that says that this is one of several processes; empty if none does."""
    if environ.get("WORLD_SIZE", "1") not in ("", "1"):
        return "WORLD_SIZE"
    if environ.get("RANK", "0") != "0":
        return "RANK"
    launcher = launched_by(environ)
    if launcher is None:
        return ""
    return launcher.world_size or launcher.rank


def _alone() -> dict[str, str]:
    """Rank 0 of 1; on a port that is free now, as other processes of this host may train alone too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return dict(zip(_NEEDED, ("0", "0", "1", "127.0.0.1", str(port)), strict=True))
