"""`accel deepspeed`: DeepSpeed's launcher, whose ranks run on the chosen accelerator."""

from __future__ import annotations

import click

from accel_core.cli.accelerator import fallback_in_words
from accel_core.errors import AccelError

__all__ = ["command"]

_UNTOUCHED = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


@click.command("deepspeed", context_settings=_UNTOUCHED, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Start a script's ranks with DeepSpeed's launcher, on the chosen accelerator.

    All options are the launcher's: accel deepspeed --help shows them. DeepSpeed's get_accelerator() is
    accel-core's in the launcher, on every node, and in every rank.
    """
    from accel_core.integrations.deepspeed._launcher import launch  # an integration, so not at the top

    try:
        with fallback_in_words():
            launch(arguments)
    except AccelError as error:
        raise click.ClickException(str(error)) from error
