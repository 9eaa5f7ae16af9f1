"""`accel completion`: the script that makes a shell complete commands, options and backend names."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

__all__ = ["command"]

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script for shell completion.

    \b
    bash (4.4 or newer), in ~/.bashrc:    eval "$(accel completion bash)"
    zsh, in ~/.zshrc:                     eval "$(accel completion zsh)"
    fish:   accel completion fish > ~/.config/fish/completions/accel.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root()
    # Not `kind.source`: for bash that starts a bash to ask its version, and fails where there is none.
    click.echo(ShellComplete.source(kind(root.command, {}, "accel", "_ACCEL_COMPLETE")))
