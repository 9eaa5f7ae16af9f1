"""`accel python`: start Python in the environment of a folder that fits this machine."""

from __future__ import annotations

import os
from pathlib import Path

import click

from accel_tools.setup import folder

__all__ = ["command"]

#: Options after the command are options of Python.
_CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False}


@click.command("python", context_settings=_CONTEXT_SETTINGS)
@click.option(
    "--folder",
    "folder_option",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="A folder that accel setup --into created. [default: the folder that contains this accel]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context, folder_option: Path | None, arguments: tuple[str, ...]
) -> None:
    """Start the Python in FOLDER that fits this machine.

    FOLDER contains environments that accel setup --into created. The machine's hardware and the variable
    DS_ACCELERATOR determine which environment is used; `accel -v python` prints the reason. ARGUMENTS are
    passed to Python: a script and its arguments, or `-m MODULE`. The exit status is that of Python.
    """
    folder_path = folder_option or folder.folder_of_running_environment()
    if folder_path is None:
        raise click.UsageError(
            "the running Python is not in a folder of environments. Next step: pass --folder FOLDER, or "
            "create a folder: accel setup --into FOLDER cpu"
        )
    launcher = folder_path.absolute() / "bin" / "python"
    if not launcher.is_file():
        raise click.UsageError(
            f"{folder_path} has no bin/python. Next step: accel setup --into {folder_path} cpu"
        )
    if ctx.find_root().params["verbose"]:
        os.environ["ACCEL_LOG"] = "1"
    os.execv(launcher, [str(launcher), *arguments])
