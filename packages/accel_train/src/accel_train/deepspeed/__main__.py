"""Implement `python -m accel_train.deepspeed script.py …`: activate the integration, then run the script."""

from __future__ import annotations

import os
import runpy
import sys

from accel_core.errors import AccelError
from accel_train.deepspeed import activate

_USAGE = """\
usage: python -m accel_train.deepspeed SCRIPT [ARGUMENTS...]
       python -m accel_train.deepspeed -m MODULE [ARGUMENTS...]

Run a script or a module in which DeepSpeed's get_accelerator() returns accel_core's accelerator.
To start several ranks: accel deepspeed --num_gpus N SCRIPT [ARGUMENTS...]"""


def main(arguments: list[str]) -> None:
    """Call `activate()`, then run the script or module in `arguments` like Python."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE)  # noqa: T201
        return
    is_module = arguments[:1] == ["-m"]
    target = arguments[1:] if is_module else arguments
    if not target or (not is_module and target[0].startswith("-")):
        sys.exit(
            f"{_USAGE}\n\nerror: no {'module' if is_module else 'script'} was given"
        )
    try:
        activate()
    except AccelError as error:
        sys.exit(f"error: {error}")
    sys.argv[:] = target
    if is_module:
        runpy.run_module(target[0], run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(target[0]):  # noqa: PTH110
        sys.exit(f"error: there is no script {target[0]!r} in {os.getcwd()}")  # noqa: PTH109
    # Like `python script.py`, search the script's folder for imports, not the current folder.
    sys.path[0] = os.path.dirname(os.path.abspath(target[0]))  # noqa: PTH100, PTH120
    runpy.run_path(target[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
