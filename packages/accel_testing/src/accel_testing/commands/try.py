# ruff: noqa: N999 - the module has the command's name
"""`accel try`: run a command with a vendor's own software, without the vendor's device."""

from __future__ import annotations

import os
import sys

import click

from accel_core.cli.output import status_of
from accel_core.errors import AccelError, BackendNotFoundError
from accel_core.settings import permitted_entry_points
from accel_core.text import did_you_mean
from accel_testing.commands.simulate import replace_process, resolve_command

__all__ = ["command"]

#: The entry point group. Each entry point is named after a backend, and its function returns environment
#: variables along with a sentence that describes them.
GROUP = "accel.trials"


@click.command(
    "try",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("name", metavar="NAME")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND...")
@click.pass_context
def command(ctx: click.Context, name: str, words: tuple[str, ...]) -> None:
    """Run a command on a vendor's package, without a device.

    Nothing is simulated: accel try tpu -- python train.py runs Google's TorchTPU with XLA's library for the
    CPU. The backend's plugin sets environment variables for the command and its child processes. Messages and
    `accel list` name the library that replaces the device. The exit status is the command's.
    """
    if words and words[0] == "--":
        words = words[1:]
    if not words:
        raise click.UsageError(
            f"Missing a command, such as: accel try {name} -- python train.py", ctx
        )
    try:
        # The order is reversed, because the first of two entry points with the same name takes precedence.
        entry_points = {
            entry_point.name: entry_point
            for entry_point in reversed(permitted_entry_points(GROUP))
        }
        if name not in entry_points:
            available = ", ".join(sorted(entry_points)) or "none"
            raise BackendNotFoundError(
                f"accel try {name}: no installed plugin can replace the device {name}."
                f"{did_you_mean(name, entry_points)} Devices that plugins can replace: {available}. "
                "Next step: to list the devices that can be simulated instead, run accel simulate --list"
            )
        get_environment = entry_points[name].load()
        variables, description = get_environment()
        arguments = resolve_command(words)
    except AccelError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(status_of(error))
    click.echo(description, err=True)
    replace_process(ctx, arguments, {**os.environ, **variables})
