"""Worker of each rank of `accel run`: bind the rank's cores and devices, then become the script.

    python -m accel_train.launch.worker --plan=JSON [--before=MODULE] --python|--module|--command SCRIPT
        ARGUMENTS...

It is a process of its own, so that OpenMP and the vendor's runtime find their variables when they load.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from accel_train.launch.cores import parse_ranges

__all__ = ["REFUSED", "main"]

#: The status by which a module that runs before the script keeps it from starting: EX_CONFIG of sysexits.h.
REFUSED = 78
#: Linux's number of the request (linux/prctl.h).
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Set this process up as the plan says for `LOCAL_RANK`, then replace it by the script."""
    plan, kind, *command = arguments
    before = ""
    if kind.startswith("--before="):
        before, kind, *command = kind.removeprefix("--before="), *command
    job = json.loads(plan.removeprefix("--plan="))
    _end_with(job["launcher"])
    if job["started"]:
        Path(job["started"]).touch()
    mine = job["ranks"][int(os.environ["LOCAL_RANK"])]
    os.environ.update(mine["environment"])
    cores = parse_ranges(mine["cores"])
    if cores:
        try:
            os.sched_setaffinity(0, cores)
        except OSError as error:  # the cpuset may have been changed since the launch
            sys.stderr.write(
                f"accel run: not bound to cores {mine['cores']}: {error}\n"
            )
    if before:
        _go_through(before, mine["environment"])
    if kind != "--command":
        python = os.environ.get(
            "PYTHON_EXEC", sys.executable
        )  # torchrun's own variable
        command = [python, "-u", *(["-m"] if kind == "--module" else []), *command]
    if (
        os.name == "nt"
    ):  # where exec starts another process, and the launcher would think that we have ended
        raise SystemExit(subprocess.call(command))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise SystemExit(
            f"accel run: {command[0]} cannot be started: {error.strerror}"
        ) from None


def _end_with(launcher: int) -> None:
    """Have Linux kill this process when its parent, the launcher, has ended, however that ends.

    The script inherits this from the worker. Elsewhere a rank may outlive a launcher that is killed.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it had ended before
        raise SystemExit(128 + signal.SIGKILL)


def _go_through(module: str, own: Iterable[str]) -> None:
    """Run a module before the script, in a process of its own; end here where it says so by its status.

    It hears which variables this rank was given alone. Whatever else comes of it, the script starts.
    """
    from accel_core.torch_import import (
        AUTOLOAD,
    )  # takes as long as all else here, in each rank

    environ = {**os.environ, AUTOLOAD: "0"}
    status = subprocess.call([sys.executable, "-m", module, *own], env=environ)
    if status == REFUSED:
        raise SystemExit(status)
    if status:
        sys.stderr.write(
            f"accel run: {module} ended with status {status}; the script starts\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
