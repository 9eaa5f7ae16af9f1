"""The command group: `accel --help`, `--version`, and the commands under it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import click
from click.shell_completion import CompletionItem

from accel_core import __version__
from accel_core._support import logged_by
from accel_core._support.packages import is_installed
from accel_core._support.torch_import import IMPORTED
from accel_core.cli import commands, end_interrupted
from accel_core.errors import CAUGHT, root_cause
from accel_core.machine.vendors import sourced

__all__ = ["accel"]


class _Commands(Mapping[str, click.Command]):
    """The installed commands by name, each imported when it is used."""

    @cached_property
    def announced(self) -> dict[str, commands.Announced]:
        """The facts of each that need no import."""
        return commands.announced()

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = self.announced[name].load(name)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self.announced)

    def __len__(self) -> int:
        return len(self.announced)


class _Group(click.Group):
    """A group that lists its commands without importing them.

    Ctrl-C ends the process as it ends one that does not look for it, where click would have ended it with
    status 1.
    """

    commands: _Commands  # type: ignore[assignment]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            end_interrupted()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; raises `click.UsageError` where it is not installed."""
        command = self.commands.announced.get(cmd_name)
        if command is None:
            missing = commands.BESIDE.get(cmd_name)
            if missing is None:
                return None
            raise click.UsageError(
                f"accel {cmd_name} comes with {missing}, which is not installed: "
                f"{sourced(f'pip install {missing}')}",
                ctx,
            )
        if not command.package:
            raise click.ClickException(command.summary)
        try:
            return self.commands[cmd_name]
        except CAUGHT as error:
            raise click.ClickException(f"accel {cmd_name} cannot be used: {root_cause(error)}") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, and where those are that are not installed."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in self.commands.announced.items()])
        missing: dict[str, list[str]] = {}
        for name, of in commands.BESIDE.items():
            if name not in self.commands.announced:
                missing.setdefault(f"pip install {of}", []).append(name)
        if missing:
            with formatter.section("Commands of distributions that are not installed"):
                formatter.write_dl([(sourced(step), ", ".join(names)) for step, names in missing.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin with `incomplete`."""
        names = [
            CompletionItem(name, help=command.summary)
            for name, command in self.commands.announced.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _import_first(_ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> None:
    """Name the packages where this process and its children look for them."""
    for name in names:
        if not is_installed(name):
            raise click.BadParameter(
                f"no module {name!r} is installed here; install it, or correct its name."
            )
    if names:
        os.environ[IMPORTED] = ",".join([*names, os.environ.get(IMPORTED, "")]).rstrip(",")


@click.group(
    cls=_Group,
    commands=_Commands(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message="accel-core %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is tried, and when.")
@click.option(
    "--import", "imported", metavar="PACKAGE", multiple=True, expose_value=False, callback=_import_first,
    help="Import it after torch: a package whose device torch does not find by itself; may be repeated.",
)  # fmt: skip
@click.pass_context
def accel(ctx: click.Context, *, verbose: bool) -> None:
    """Which accelerators does PyTorch have here, and which one is chosen?

    Each backend is probed in a process of its own. Listing works without torch.

    \b
    accel list                    the backends, and which of them can be used
    accel why npu                 why npu is or is not usable, in detail
    accel info cuda --json        what cuda is and can do, as JSON
    accel run train.py            one rank for each device on this host
    DS_ACCELERATOR=cpu accel why  try a setting: accel help variables

    Exit status of why, info, ops NAME: 0 usable, 1 not, 2 bad usage or setting.
    """
    if verbose:
        ctx.with_resource(logged_by(logging.StreamHandler()))
