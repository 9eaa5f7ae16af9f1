"""`accel run`: start ranks as torchrun does, on any accelerator."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click

from accel_core.cli.output import status_of
from accel_core.errors import AccelError, IntegrationMissingError, LaunchError
from accel_core.hardware import vendors
from accel_core.log import LOGGER
from accel_core.settings import permitted_entry_points
from accel_core.text import one_line
from accel_train.commands import launcher
from accel_train.launch import command_line, forked, launch, network, plan
from accel_train.launch.plan import Machine, RankPlan

__all__ = ["command"]

#: What completes: of torchrun's options the most used, for all of them would need torch.
_OFFERED = (
    *(*command_line.OPTIONS, *command_line.FLAGS, "--help", "--help-all"), *command_line.MOST_USED,
)  # fmt: skip
#: Entry points that name the module that each rank runs before the script, where `--doctor` asks for it.
_BEFORE = "accel.before_ranks"


@click.command("run", cls=launcher.Launcher, add_help_option=False)
@launcher.words(*_OFFERED)
def command(arguments: tuple[str, ...]) -> None:
    """Start the ranks of a script on this host, as torchrun does.

    It accepts its own options and torchrun's in any order. accel run --help shows its own and the most used
    of torchrun's; --help-all shows all. The exit status is torchrun's: 0 if every rank succeeded.
    """
    try:
        start = forked.way_to_start()  # before the parser imports torch
        # Not click's parser: torchrun's is what knows torchrun's options, and takes ours beside them.
        parsed = command_line.parse(arguments)
        launch.check_script(parsed)
        machine = launch.ask_machine(
            parsed.backend, parsed.communication_backend, parsed.timeout, start
        )
        plans = plan.plan_ranks(parsed, machine)
        if machine.warning:
            click.echo(f"Warning: {machine.warning}\n", err=True)
        if machine.masked:
            click.echo(
                f"Warning: {machine.masked}. Next step: {machine.masked_step}\n",
                err=True,
            )
        if machine.why_kept:
            click.echo(f"{machine.why_kept}\n", err=True)
        if parsed.dry_run:
            click.echo(plan.describe(machine, parsed, plans))
            return
        if machine.defaults:
            set_now = " ".join(
                f"{name}={value}" for name, value in machine.defaults.items()
            )
            click.echo(
                f"Set for {machine.name}: {set_now} (set one yourself to keep your value)\n",
                err=True,
            )
        _launch(parsed, machine, plans)
    except AccelError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(status_of(error))


def _launch(
    parsed: argparse.Namespace, machine: Machine, plans: list[RankPlan]
) -> None:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    before = ""
    if parsed.doctor:
        announced = permitted_entry_points(_BEFORE)
        if not announced:
            raise IntegrationMissingError(
                f"accel run --doctor needs accel-tools: {vendors.install_command('accel-tools')}"
            )
        before = announced[0].value
    several = network.for_several_hosts(parsed)
    for sentence in several.said:
        click.echo(f"Note: {sentence}", err=True)
    os.environ.update(several.variables)
    if several.configuration:
        given = [parsed.rdzv_conf] if parsed.rdzv_conf else []
        parsed.rdzv_conf = ",".join([*given, several.configuration])
    folder = tempfile.mkdtemp(prefix="accel-run-")
    started = Path(folder, "started")
    try:
        launch.launch(parsed, machine, plans, before, str(started))
    except ChildFailedError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except (SignalException, KeyboardInterrupt) as error:
        number = getattr(error, "sigval", signal.SIGINT)
        click.echo(
            f"accel run: ended by {signal.Signals(number).name}, and its ranks with it",
            err=True,
        )
        sys.exit(128 + number)
    except (
        OSError,
        ValueError,
        RuntimeError,
        RendezvousError,
    ) as error:  # a port, a folder, a network
        LOGGER.debug("torchrun's error", exc_info=True)
        raise _launch_error(error, parsed, has_started=started.exists()) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _launch_error(
    error: Exception, parsed: argparse.Namespace, *, has_started: bool
) -> LaunchError:
    """Return torchrun's error in words: the start of the ranks has failed, or a job has ended."""
    # torchrun's own words on an argument; else those of the network, which it hides.
    cause = None if isinstance(error, ValueError) else error.__cause__
    words = _first_line(cause or error)
    if has_started:
        return LaunchError(
            f"the ranks of this host were running, and torchrun ended the job: {words}"
        )
    if "EADDRINUSE" in words:  # torch's DistNetworkError has it in its text alone
        return LaunchError(
            f"torchrun cannot listen at {_address(parsed)}: the port is in use on this host, perhaps by a "
            f"run that has not ended. Give another port, on all hosts: {_port_option(parsed)}"
        )
    return LaunchError(f"torchrun cannot start the job: {words}")


def _address(parsed: argparse.Namespace) -> str:
    """Return where the hosts meet."""
    return parsed.rdzv_endpoint or f"{parsed.master_addr}:{parsed.master_port}"


def _port_option(parsed: argparse.Namespace) -> str:
    """Return torchrun's option for the port, with the next port."""
    if not parsed.rdzv_endpoint:
        return f"--master-port {parsed.master_port + 1}"
    host, _, port = parsed.rdzv_endpoint.rpartition(":")
    return f"--rdzv-endpoint {host}:{int(port) + 1}"


def _first_line(error: BaseException) -> str:
    """The error's own words: its class too where they are a file's name, or none."""
    told = one_line(str(error).strip().partition("\n")[0])
    return (
        told
        if isinstance(error, (OSError, ValueError)) and told
        else f"{type(error).__name__}: {told}"
    )
