"""`accel help`: the help of a command, and the environment variables."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from accel_core.settings import VARIABLES

__all__ = ["command"]

_VARIABLES = "variables"


def _topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    return [CompletionItem(name) for name in (_VARIABLES, *group.commands) if name.startswith(incomplete)]


@click.command("help")
@click.argument("topic", required=False, metavar="[COMMAND|variables]", shell_complete=_topics)
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> None:
    """Explain a command, or the settings: accel help variables."""
    if topic == _VARIABLES:
        formatter = ctx.make_formatter()
        with formatter.section("Environment variables that steer the choice"):
            formatter.write_dl([(variable.name, variable.help) for variable in VARIABLES])
        click.echo(formatter.getvalue().rstrip())
    else:
        ctx.find_root().command.main([*filter(None, [topic]), "--help"], prog_name="accel")
