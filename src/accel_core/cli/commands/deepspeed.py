"""`accel deepspeed`: DeepSpeed's launcher, whose ranks run on the chosen accelerator."""

from __future__ import annotations

import click

from accel_core.errors import AccelError

__all__ = ["deepspeed"]

_UNTOUCHED = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


@click.command(context_settings=_UNTOUCHED, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def deepspeed(arguments: tuple[str, ...]) -> None:
    """Start a script's ranks with DeepSpeed's launcher, on the chosen accelerator.

    All options are the launcher's: accel deepspeed --help shows them. DeepSpeed's get_accelerator() is
    accel-core's in the launcher, on every node, and in every rank.
    """
    from accel_core.integrations.deepspeed._launcher import launch

    try:
        launch(arguments)
    except AccelError as error:
        raise click.ClickException(str(error)) from error
