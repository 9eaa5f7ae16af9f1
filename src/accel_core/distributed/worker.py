"""What `accel run` starts for each rank: it takes the rank's cores and devices, and becomes the script.

    python -m accel_core.distributed.worker --plan=JSON --python|--module|--command SCRIPT ARGUMENTS...

A process of its own, so that OpenMP and the vendor's runtime find their variables when they are loaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from accel_core.machine.host import parse_ranges

__all__ = ["main"]


def main(arguments: Sequence[str]) -> None:
    """Set this process up as the plan says for `LOCAL_RANK`, and replace it by the script's."""
    plan, kind, *command = arguments
    ranks = json.loads(plan.removeprefix("--plan="))
    mine = ranks[int(os.environ["LOCAL_RANK"])]
    os.environ.update(mine["environment"])
    cores = parse_ranges(mine["cores"])
    if cores:
        try:
            os.sched_setaffinity(0, cores)
        except OSError as error:  # the cpuset may have been changed since the launch
            sys.stderr.write(f"accel run: not bound to cores {mine['cores']}: {error}\n")
    if kind != "--command":
        python = os.environ.get("PYTHON_EXEC", sys.executable)  # torchrun's own variable
        command = [python, "-u", *(["-m"] if kind == "--module" else []), *command]
    if os.name == "nt":  # where exec starts another process, and the launcher would think that we have ended
        raise SystemExit(subprocess.call(command))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise SystemExit(f"accel run: {command[0]} cannot be started: {error.strerror}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
