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
    "given_folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The folder of accel setup --into. [default: the one that this accel is in]",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context, given_folder: Path | None, arguments: tuple[str, ...]
) -> None:
    """Start the Python of a folder that fits this machine.

    ARGUMENTS are passed to Python: a script and its arguments, or `-m MODULE`. The hardware of the machine
    and DS_ACCELERATOR choose the environment before Python starts. `accel -v python` prints the choice and
    its reason. The exit status is that of Python.
    """
    into = given_folder or folder.folder_of_running_environment()
    if into is None:
        raise click.UsageError(
            "this command is not in a folder of environments. Give --folder FOLDER, or make a folder: "
            "accel setup --into FOLDER cpu."
        )
    launcher = into.absolute() / "bin" / "python"
    if not launcher.is_file():
        raise click.UsageError(
            f"{into} has no bin/python. Next step: accel setup --into {into} cpu"
        )
    if ctx.find_root().params["verbose"]:
        os.environ["ACCEL_LOG"] = "1"
    os.execv(launcher, [str(launcher), *arguments])
