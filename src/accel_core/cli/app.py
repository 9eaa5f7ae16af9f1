"""The command group: `accel --help`, `--version`, and the commands under it."""

from __future__ import annotations

import click

from accel_core import __version__
from accel_core.cli.commands.completion import completion
from accel_core.cli.commands.deepspeed import deepspeed
from accel_core.cli.commands.env import env
from accel_core.cli.commands.info import info
from accel_core.cli.commands.list import list_backends
from accel_core.cli.commands.ops import ops
from accel_core.cli.commands.run import run
from accel_core.cli.commands.why import why

__all__ = ["accel"]

_EXAMPLES = (
    ("accel list", "every backend, and whether it can be used here"),
    ("accel why", "what would be chosen, and why not the others"),
    ("accel why npu", "why npu is or is not usable, in detail"),
    ("accel info", "what the chosen accelerator is and can do"),
    ("accel info cuda --json", "the same of cuda, as JSON"),
    ("accel ops FusedAdam", "who provides this operator, and which one is used"),
    ("accel run train.py", "one rank for each device on this host"),
    ("accel deepspeed --num_gpus 2 train.py", "DeepSpeed's launcher, on the chosen accelerator"),
    ("DS_ACCELERATOR=cpu accel why", "try a setting"),
)
_STATUSES = (
    ("0", "something is usable: what was named, or else anything"),
    ("1", "it is not, or it is not installed"),
    ("2", "bad usage, or an environment variable that cannot be understood"),
)


class _Group(click.Group):
    """A group whose help ends with examples, the exit statuses and the environment variables."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections that follow the list of commands."""
        from accel_core.settings import VARIABLES

        variables = [(variable.name, variable.help) for variable in VARIABLES]
        for title, rows in (
            ("Examples", _EXAMPLES),
            ("Exit status (why, info, ops NAME)", _STATUSES),
            ("Environment variables", variables),
        ):
            with formatter.section(title):
                formatter.write_dl(list(rows))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="accel-core %(version)s")
def accel() -> None:
    """Which accelerators does PyTorch have here, and which one is chosen?

    accel finds the installed backends, tries each in a process of its own, and says why one is chosen and
    the others are not. Listing works without torch.
    """


for command in (list_backends, info, why, ops, run, deepspeed, env, completion):
    accel.add_command(command)
