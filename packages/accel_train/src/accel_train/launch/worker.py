"""Start one rank of `accel run`: set its variables, bind its cores, then run the script.

    python -m accel_train.launch.worker --plan=JSON [--before=MODULE] --python|--module|--command SCRIPT
        ARGUMENTS...

The worker replaces its process with the script, so that OpenMP and the vendor's runtime find the rank's
variables when they load. `JSON` has the fields `launcher` (a process id), `started` (a path, or empty) and
`ranks` (a list with the `RankPlan` fields of each local rank).
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

#: If the module before the script exits with this status, the script is not started. The value is EX_CONFIG
#: in sysexits.h.
REFUSED = 78
#: The prctl() option that sets the signal to receive when the parent process dies (linux/prctl.h).
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> None:
    """Prepare this process according to the plan for `LOCAL_RANK`, then replace the process with the script.

    `arguments` are the command-line arguments shown in this module's docstring, without `python -m`.
    """
    plan_option, script_option, *command = arguments
    module_before = ""
    if script_option.startswith("--before="):
        # With this option, the script's option is the third argument.
        module_before = script_option.removeprefix("--before=")
        script_option, *command = command
    job = json.loads(plan_option.removeprefix("--plan="))
    _end_with_launcher(job["launcher"])
    if job["started"]:
        Path(job["started"]).touch()
    plan_of_rank = job["ranks"][int(os.environ["LOCAL_RANK"])]
    os.environ.update(plan_of_rank["environment"])
    _bind_cores(plan_of_rank["cores"])
    if module_before:
        _run_module_before_script(module_before, plan_of_rank["environment"])
    if script_option != "--command":
        # torchrun reads the same variable.
        python = os.environ.get("PYTHON_EXEC", sys.executable)
        python_command = [python, "-u"]
        if script_option == "--module":
            python_command.append("-m")
        command = [*python_command, *command]
    if os.name == "nt":
        # On Windows, exec starts a new process and ends this process, for which torchrun waits.
        raise SystemExit(subprocess.call(command))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise SystemExit(
            f"accel run: {command[0]} cannot be started: {error.strerror}"
        ) from None


def _bind_cores(ranges: str) -> None:
    """Bind this process to the cores in `ranges`, such as `"0-3,8"`. Do nothing if `ranges` is empty."""
    cores = parse_ranges(ranges)
    if not cores:
        return
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:  # The cpuset may have changed since the launch.
        sys.stderr.write(f"accel run: could not bind to cores {ranges}: {error}\n")


def _end_with_launcher(launcher: int) -> None:
    """Make Linux kill this process when its parent process, the launcher, ends.

    `launcher` is the launcher's process id. The setting also holds for the script. On other systems, a rank
    may outlive a launcher that is killed.
    """
    if sys.platform != "linux":
        return
    c_library = ctypes.CDLL(None)
    # From now on, the kernel kills this process when its parent ends.
    c_library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # The launcher ended before the call.
        raise SystemExit(128 + signal.SIGKILL)


def _run_module_before_script(module: str, own_variables: Iterable[str]) -> None:
    """Run a module in a separate process, and exit with `REFUSED` if the module exits with that status.

    The module's arguments, `own_variables`, are the names of the variables that only this rank has. After any
    other exit status, the script starts.
    """
    # Imported here because this import doubles the start time of each rank.
    from accel_core.torch_import import AUTOLOAD
    from accel_train.launch.variables import ACCEL_UNUSED

    # The module is not the program, so it must not warn that the accelerator was not used.
    environ = {**os.environ, AUTOLOAD: "0", ACCEL_UNUSED.name: "ignore"}
    command = [sys.executable, "-m", module, *own_variables]
    status = subprocess.call(command, env=environ)
    if status == REFUSED:
        raise SystemExit(status)
    if status:
        sys.stderr.write(
            f"accel run: {module} exited with status {status}; the script starts anyway\n"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
