"""The command group: `accel --help`, `--version`, and the commands under it."""

from __future__ import annotations

import logging
from collections import UserDict
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from accel_core._support import log
from accel_core._version import __version__
from accel_core.cli import commands, end_interrupted
from accel_core.settings import VARIABLES

__all__ = ["accel"]

_EXAMPLES = (
    ("accel list", "the backends, and which of them can be used here"),
    ("accel why", "what would be chosen, and why not the others"),
    ("accel why npu", "why npu is or is not usable, in detail"),
    ("accel doctor", "what is wrong here, and the next command for each of it"),
    ("accel info", "what the chosen accelerator is and can do"),
    ("accel info cuda --json", "the same of cuda, as JSON"),
    ("accel bench --json", "how fast it copies, multiplies, launches and communicates"),
    ("accel ops FusedAdam", "who provides this operator, and which one is used"),
    ("accel run train.py", "one rank for each device on this host"),
    ("accel deepspeed --num_gpus 2 train.py", "DeepSpeed's launcher, on the chosen accelerator"),
    ("accel new acme", "a plugin distribution for a device of your own"),
    ("DS_ACCELERATOR=cpu accel why", "try a setting"),
)
_STATUSES = (
    ("0", "something is usable: what was named, or else anything"),
    ("1", "it is not, or it is not installed"),
    ("2", "bad usage, or a setting that cannot be understood"),
)


class _Commands(UserDict[str, Any]):
    """The commands by name, each imported when it is used.

    No import hides in a string: a module of the folder `commands` is the command of its name, and a test
    holds the folder against the table of summaries.
    """

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.data:
            raise KeyError(name)
        command: click.Command = import_module(f"{commands.__name__}.{name}").command
        return command


class _Group(click.Group):
    """A group that lists its commands without importing them.

    Its help ends with examples, the exit statuses and the environment variables. Ctrl-C ends the process as
    it ends one that does not look for it, where click would have ended it with status 1.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            end_interrupted()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(commands.SUMMARIES.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin with `incomplete`."""
        names = [
            CompletionItem(name, help=summary)
            for name, summary in commands.SUMMARIES.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections that follow the list of commands."""
        variables = [(variable.name, variable.help) for variable in VARIABLES]
        for title, rows in (
            ("Examples", _EXAMPLES),
            ("Exit status (why, info, ops NAME)", _STATUSES),
            ("Environment variables", variables),
        ):
            with formatter.section(title):
                formatter.write_dl(list(rows))


@click.group(
    cls=_Group,
    commands=_Commands(commands.SUMMARIES),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message="accel-core %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Say on stderr what is tried, and when.")
@click.pass_context
def accel(ctx: click.Context, *, verbose: bool) -> None:
    """Which accelerators does PyTorch have here, and which one is chosen?

    accel finds the installed backends, tries each in a process of its own, and says why one is chosen and
    the others are not. Listing works without torch.
    """
    if verbose:
        ctx.with_resource(log.handled_by(logging.StreamHandler()))
