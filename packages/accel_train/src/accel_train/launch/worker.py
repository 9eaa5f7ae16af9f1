"""Start one rank of `accel run`: bind its cores and devices, then become the script.

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

#: Exit status of the module before the script, if the script must not start: EX_CONFIG of sysexits.h.
REFUSED = 78
#: Linux's number of the request (linux/prctl.h).
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Set this process up as the plan says for `LOCAL_RANK`, then replace it by the script.

    `arguments`: as in this module's docstring.
    """
    plan, script_option, *command = arguments
    before = ""
    if script_option.startswith("--before="):
        before = script_option.removeprefix("--before=")
        script_option, *command = command
    job = json.loads(plan.removeprefix("--plan="))
    _end_with_launcher(job["launcher"])
    if job["started"]:
        Path(job["started"]).touch()
    plan_of_rank = job["ranks"][int(os.environ["LOCAL_RANK"])]
    os.environ.update(plan_of_rank["environment"])
    cores = parse_ranges(plan_of_rank["cores"])
    if cores:
        try:
            os.sched_setaffinity(0, cores)
        except OSError as error:  # the cpuset may have changed since the launch
            sys.stderr.write(
                f"accel run: not bound to cores {plan_of_rank['cores']}: {error}\n"
            )
    if before:
        _run_module_before_script(before, plan_of_rank["environment"])
    if script_option != "--command":
        python = os.environ.get("PYTHON_EXEC", sys.executable)  # torchrun's variable
        module_option = ["-m"] if script_option == "--module" else []
        command = [python, "-u", *module_option, *command]
    if os.name == "nt":
        # There exec starts another process, and the launcher would take this one for ended.
        raise SystemExit(subprocess.call(command))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise SystemExit(
            f"accel run: {command[0]} cannot be started: {error.strerror}"
        ) from None


def _end_with_launcher(launcher: int) -> None:
    """Make Linux kill this process when its parent, the launcher with that process id, ends.

    The script inherits this from the worker. On other systems a rank may outlive a launcher that is killed.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it had ended before
        raise SystemExit(128 + signal.SIGKILL)


def _run_module_before_script(module: str, own_variables: Iterable[str]) -> None:
    """Run a module before the script, in a process of its own; exit if its status is `REFUSED`.

    Its arguments are the names of the variables that only this rank has. After any other status the script
    starts.
    """
    # Imported here: it takes as long as all the rest of this module, in each rank.
    from accel_core.torch_import import AUTOLOAD

    environ = {**os.environ, AUTOLOAD: "0"}
    command = [sys.executable, "-m", module, *own_variables]
    status = subprocess.call(command, env=environ)
    if status == REFUSED:
        raise SystemExit(status)
    if status:
        sys.stderr.write(
            f"accel run: {module} ended with status {status}; the script starts\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
