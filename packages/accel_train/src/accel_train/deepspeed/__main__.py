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
    """Call `activate()`, then run the script or module in `arguments` in the same way as Python does."""
    first_argument = arguments[0] if arguments else ""
    if first_argument in ("-h", "--help"):
        print(_USAGE)  # noqa: T201
        return
    if first_argument == "-m":
        module_arguments = arguments[1:]
        if not module_arguments:
            sys.exit(f"{_USAGE}\n\nerror: no module was given")
        _activate()
        sys.argv[:] = module_arguments
        runpy.run_module(module_arguments[0], run_name="__main__", alter_sys=True)
        return
    if not arguments or first_argument.startswith("-"):
        sys.exit(f"{_USAGE}\n\nerror: no script was given")
    _activate()
    sys.argv[:] = arguments
    script = first_argument
    if not os.path.exists(script):  # noqa: PTH110
        sys.exit(f"error: there is no script {script!r} in the folder {os.getcwd()}")  # noqa: PTH109
    # Like `python script.py`, search the script's folder for imports, not the current folder.
    sys.path[0] = os.path.dirname(os.path.abspath(script))  # noqa: PTH100, PTH120
    runpy.run_path(script, run_name="__main__")


def _activate() -> None:
    """Call `activate()`, and exit with its error message if it fails."""
    try:
        activate()
    except AccelError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
