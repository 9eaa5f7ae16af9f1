"""Implement `accel run`, which starts ranks like torchrun, on any accelerator."""

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
from accel_core.settings import read as read_settings
from accel_core.text import one_line
from accel_train.commands import launcher
from accel_train.launch import command_line, endpoint, forked, launch, network, plan
from accel_train.launch.plan import Machine, RankPlan

__all__ = ["command"]

#: Options for completion in a shell. Of torchrun's options, only the most used are listed, because a list of
#: all options would need torch.
_COMPLETED_OPTIONS = (
    *command_line.OPTIONS, *command_line.FLAGS, "--help", "--help-all", *command_line.TORCHRUN_OPTIONS,
)  # fmt: skip
#: The group of the entry point that names the module that each rank runs before the script with `--doctor`.
_BEFORE_RANKS_GROUP = "accel.before_ranks"


@click.command("run", cls=launcher.Launcher, add_help_option=False)
@launcher.all_arguments(*_COMPLETED_OPTIONS)
def command(arguments: tuple[str, ...]) -> None:
    """Launch one process per device on this host, like torchrun.

    Options of accel run and of torchrun may be mixed in any order. accel run --help shows the options of
    accel run and the most used options of torchrun; --help-all shows all options. The exit status is
    torchrun's: 0 if every rank succeeded.
    """
    try:
        if arguments and arguments[0] == "--folder":
            _replace_process_with_accel_run_of_folder(arguments)
        # Called before the parser imports torch.
        start_child = forked.child_starter()
        # torchrun's parser is used instead of click's, because it has torchrun's options.
        parsed = command_line.parse(arguments)
        launch.check_script(parsed)
        machine = launch.examine_machine(
            parsed.backend, parsed.communication_backend, parsed.timeout, start_child
        )
        plans = plan.plan_ranks(parsed, machine)
        _print_notices(machine)
        if parsed.dry_run:
            click.echo(plan.describe(machine, parsed, plans))
            return
        _print_default_variables(machine)
        _launch_ranks(parsed, machine, plans)
    except AccelError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(status_of(error))


def _replace_process_with_accel_run_of_folder(arguments: tuple[str, ...]) -> None:
    """Replace this process with the `accel run` of the folder in `arguments`: `--folder FOLDER ...`.

    The folder's program `accel` chooses the environment in the folder. Raises `LaunchError` if the folder has
    no such program.
    """
    _option, *values = arguments
    folder = values[0] if values else ""
    program = Path(folder, "bin", "accel").absolute()
    if not program.is_file():
        raise LaunchError(
            f"--folder needs a folder that accel setup --into created, but {program} does not exist"
        )
    _folder, *other_arguments = values
    os.execv(program, [str(program), "run", *other_arguments])


def _print_notices(machine: Machine) -> None:
    """Print to stderr the warnings about the choice, the visible devices, and other vendors' packages."""
    if machine.warning:
        click.echo(f"Warning: {machine.warning}\n", err=True)
    if machine.visibility_problem:
        click.echo(
            f"Warning: {machine.visibility_problem}. Next step: {machine.visibility_problem_step}\n",
            err=True,
        )
    if machine.isolation_reason:
        click.echo(f"{machine.isolation_reason}\n", err=True)


def _print_default_variables(machine: Machine) -> None:
    """Print to stderr the variables that are set to the default values of the backend's declaration."""
    if machine.defaults:
        assignments = " ".join(
            f"{name}={value}" for name, value in machine.defaults.items()
        )
        click.echo(
            f"Defaults for {machine.name}, set for the ranks: {assignments}. To use a different value, set "
            "the variable yourself.\n",
            err=True,
        )


def _module_before_script(parsed: argparse.Namespace) -> str:
    """Return the module that each rank runs before the script with `--doctor`.

    Returns an empty string without that option. Raises `IntegrationMissingError` if accel-tools, which has
    the module, is not installed.
    """
    if not parsed.doctor:
        return ""
    entry_points = permitted_entry_points(_BEFORE_RANKS_GROUP)
    if not entry_points:
        raise IntegrationMissingError(
            "accel run --doctor needs accel-tools, which is not installed. Next step: "
            f"{vendors.install_command('accel-tools')}"
        )
    first_entry_point, *_ = entry_points
    return first_entry_point.value  # The name of a module.


def _apply_network_settings(parsed: argparse.Namespace) -> None:
    """Set the variables and the torchrun option that a job on several hosts needs, and print notes.

    Raises `LaunchError` if this host cannot connect to itself, because torchrun would then wait for minutes.
    With `--doctor`, also raises `LaunchError` if the process that listens at the rendezvous endpoint is not
    torchrun's store.
    """
    loopback_failure = network.check_loopback()
    if loopback_failure is not None:
        raise LaunchError(_with_step(str(loopback_failure), loopback_failure.step))
    if parsed.doctor:
        _check_own_name()
        _check_endpoint(parsed)
    settings = network.network_settings(parsed)
    for sentence in settings.notes:
        click.echo(f"Note: {sentence}", err=True)
    os.environ.update(settings.variables)
    if settings.rdzv_conf and parsed.rdzv_conf:
        parsed.rdzv_conf = f"{parsed.rdzv_conf},{settings.rdzv_conf}"
    elif settings.rdzv_conf:
        parsed.rdzv_conf = settings.rdzv_conf


def _check_own_name() -> None:
    """Print why this host cannot connect to itself at the address of its name, which torchrun may use."""
    failure = network.check_own_name()
    if failure is not None:
        click.echo(f"Warning: {_with_step(str(failure), failure.step)}", err=True)


def _check_endpoint(parsed: argparse.Namespace) -> None:
    """Print why the rendezvous endpoint cannot be reached, or raise `LaunchError` if the job cannot start."""
    problem = endpoint.find_endpoint_problem(parsed, read_settings().probe_timeout)
    if problem is None:
        return
    if problem.is_fatal:
        raise LaunchError(problem.text)
    click.echo(f"Warning: {problem.text}", err=True)


def _with_step(problem: str, step: str) -> str:
    """Return a message with the problem, and with the next step unless `step` is empty."""
    if not step:
        return problem
    return f"{problem}. Next step: {step}"


def _launch_ranks(
    parsed: argparse.Namespace, machine: Machine, plans: list[RankPlan]
) -> None:
    """Start the ranks with torchrun, and wait until they end.

    Exits with 1 if a rank failed, and with 128 plus the signal's number if a signal ended the job. Raises
    `LaunchError` if torchrun itself failed.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError

    module_before = _module_before_script(parsed)
    _apply_network_settings(parsed)
    folder = tempfile.mkdtemp(prefix="accel-run-")
    started_file = Path(folder, "started")  # Created when the first rank starts.
    try:
        launch.launch(parsed, machine, plans, module_before, str(started_file))
    except ChildFailedError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    except (SignalException, KeyboardInterrupt) as error:
        # A KeyboardInterrupt has no signal number.
        signal_number = getattr(error, "sigval", signal.SIGINT)
        signal_name = signal.Signals(signal_number).name
        click.echo(
            f"accel run: {signal_name} ended the launcher and its ranks", err=True
        )
        # The exit status that a shell reports for a process that a signal ended.
        sys.exit(128 + signal_number)
    # torchrun raises these errors if it cannot use a port, a folder or the network.
    except (OSError, ValueError, RuntimeError, RendezvousError) as error:
        LOGGER.debug("torchrun's error", exc_info=True)
        has_started = started_file.exists()
        raise _launch_error(error, parsed, has_started=has_started) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _launch_error(
    error: Exception, parsed: argparse.Namespace, *, has_started: bool
) -> LaunchError:
    """Return a `LaunchError` for an error of torchrun.

    `has_started` is True if the ranks were running. Otherwise, torchrun could not start the job.
    """
    original_error: BaseException = error
    # A ValueError is about an argument. The cause of any other error is the network's error.
    if not isinstance(error, ValueError) and error.__cause__ is not None:
        original_error = error.__cause__
    message = _short_error_text(original_error)
    if has_started:
        return LaunchError(
            f"torchrun ended the job while the ranks of this host were running: {message}"
        )
    # torch's DistNetworkError contains the name of the system's error only in its message.
    if "EADDRINUSE" in message:
        host, port = network.rendezvous_endpoint(parsed)
        return LaunchError(
            f"torchrun cannot listen at {_format_endpoint(host, port)}: the port is in use on this host, "
            "perhaps by a run that has not ended. Use a different port on all hosts: "
            f"{_next_port_option(parsed)}"
        )
    return LaunchError(f"torchrun cannot start the job: {message}")


def _next_port_option(parsed: argparse.Namespace) -> str:
    """Return torchrun's option that selects the next higher port, such as `--master-port 29501`."""
    host, port = network.rendezvous_endpoint(parsed)
    if not parsed.rdzv_endpoint:
        return f"--master-port {port + 1}"
    return f"--rdzv-endpoint {_format_endpoint(host, port + 1)}"


def _format_endpoint(host: str, port: int) -> str:
    """Return `HOST:PORT` in torchrun's format, with brackets around an IPv6 address."""
    is_ipv6 = ":" in host
    if is_ipv6:
        return f"[{host}]:{port}"
    return f"{host}:{port}"


def _short_error_text(error: BaseException) -> str:
    """Return the name of the error's class and the first line of the error's message.

    The class is omitted for an `OSError` and a `ValueError`, whose messages are clear without the class.
    """
    first_line, _, _ = str(error).strip().partition("\n")
    line = one_line(first_line)
    if line and isinstance(error, (OSError, ValueError)):
        return line
    return f"{type(error).__name__}: {line}"
