"""`accel run`: torchrun for whatever accelerator is chosen."""

from __future__ import annotations

import argparse
import sys

import click

from accel_core.distributed import launch, plan
from accel_core.distributed.plan import Machine, RankPlan
from accel_core.errors import AccelError, SettingError

__all__ = ["command"]

_UNTOUCHED = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


@click.command("run", context_settings=_UNTOUCHED, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Start the ranks of a script on this host, as torchrun does.

    It takes torchrun's options and its own, in any order: accel run --help shows them all. The exit status
    is torchrun's: 0 when every rank succeeded.
    """
    try:
        # Not click's parser: torchrun's is what knows torchrun's options, and takes ours beside them.
        parsed = launch.parse(arguments)
        launch.check_script(parsed)
        machine = launch.ask_machine(parsed.backend, parsed.communication_backend)
        plans = plan.plan_ranks(parsed, machine)
        if machine.warning:
            click.echo(f"Warning: {machine.warning}\n", err=True)
        if machine.why_kept:
            click.echo(f"{machine.why_kept}\n", err=True)
        if parsed.dry_run:
            click.echo(plan.describe(machine, parsed, plans))
            return
        if machine.defaults:
            set_now = " ".join(f"{name}={value}" for name, value in machine.defaults.items())
            click.echo(f"Set for {machine.name}: {set_now} (ACCEL_VENDOR_DEFAULTS=0: not)\n", err=True)
        _launch(parsed, machine, plans)
    except AccelError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2 if isinstance(error, SettingError) else 1)


def _launch(parsed: argparse.Namespace, machine: Machine, plans: list[RankPlan]) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        launch.launch(parsed, machine, plans)
    except ChildFailedError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
