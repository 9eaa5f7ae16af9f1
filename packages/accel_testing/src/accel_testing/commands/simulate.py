"""`accel simulate`: run a command with simulated devices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from accel_core.cli import page
from accel_core.cli.output import answering, status_of
from accel_core.errors import AccelError, IntegrationMissingError, LaunchError
from accel_core.hardware import vendors
from accel_testing.conformance.simulated import simulator

__all__ = ["command", "replace_process", "resolve_command"]


class _Command(click.Command):
    """A click command whose options end at the first word, unless its first argument is an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and accept options after a word only if the first argument is an option."""
        # In `accel simulate acme pytest -q`, the option belongs to the command.
        first_argument = args[0] if args else ""
        starts_with_option = first_argument.startswith("-") and first_argument != "--"
        ctx.allow_interspersed_args = starts_with_option
        return super().parse_args(ctx, args)


def _complete_word(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete device names for the first word and for all words after --build, and file names elsewhere."""
    entry_point = simulator()
    # After the first word, which names the device, the words are a command. With --build, all words are
    # devices.
    is_in_command = ctx.params.get("words") and not ctx.params.get("should_build")
    if entry_point is None or is_in_command:
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(name)
        for name in entry_point.load().devices()
        if name.startswith(incomplete)
    ]


@click.command("simulate", cls=_Command)
@click.option(
    "--list",
    "should_list",
    is_flag=True,
    help="List the devices that can be simulated, and whether the library of each device is built.",
)
@click.option(
    "--build",
    "should_build",
    is_flag=True,
    help="Build the libraries of the named devices, or of all devices, without running a command.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="With --build: write the libraries into this folder, for use on machines without a compiler.",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FILE",
    help="Write a report on the command's vendor-specific code: FILE.md, .json or .sarif. Repeatable.",
)
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="DEVICE[:COUNT] [--] COMMAND...",
    shell_complete=_complete_word,
)
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    *,
    should_list: bool,
    should_build: bool,
    output: Path | None,
    reports: tuple[str, ...],
) -> None:
    """Run a command with simulated devices, for tests.

    accel simulate acme:2 -- pytest tests runs pytest with ACCEL_SIMULATE=acme:2. Child processes inherit the
    variable, so every Python process of the command has two simulated devices. The exit status is the
    command's. --report cuda.md lists each vendor-specific place in code outside torch. Requires the
    distribution accel-simulated, and a C++ compiler at the first use with each version of torch.
    """
    if output is not None and not should_build:
        raise click.UsageError(
            "--output requires --build: accel simulate --build acme --output FOLDER"
        )
    if reports and (should_list or should_build):
        raise click.UsageError(
            "--report cannot be used with --list or --build, which run no command.",
            ctx,
        )
    try:
        provider = _load_provider()
        if should_list:
            _list_devices(provider)
        elif should_build:
            _build(provider, words, output)
        else:
            _run_command(ctx, provider, words, reports)
    except AccelError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(status_of(error))


def _load_provider() -> Any:
    """Return the accel-simulated module that simulates devices.

    Raises `IntegrationMissingError` if accel-simulated is not installed.
    """
    entry_point = simulator()
    if entry_point is None:
        raise IntegrationMissingError(
            "accel simulate needs accel-simulated, which is not installed. Next step: "
            f"{vendors.install_command('accel-simulated')}"
        )
    return entry_point.load()


def _build(provider: Any, names: tuple[str, ...], folder: Path | None) -> None:
    """Build the named devices, or all devices by default, and print the paths of their libraries."""
    for name, library in provider.build(names, folder):
        click.echo(f"{name}: {library}")
    if folder is not None:
        setting = f"ACCEL_SIMULATE_LIBRARY={folder.resolve()}"
        click.echo(f"On machines with the same torch and no compiler, set {setting}")


def _list_devices(provider: Any) -> None:
    """Print the devices that can be simulated, and whether each of them has been built."""
    with answering(as_json=False) as output:
        note = page.paragraph(
            (
                "accel simulate acme:2 -- COMMAND runs a command on two acme devices.",
                "dim",
            )
        )
        rows = []
        devices = {**provider.devices(), **provider.declared_devices()}
        for name, description in devices.items():
            try:
                state = "built" if provider.find_library(name) else "not built"
            except AccelError as error:
                # A device that cannot be built on this machine is listed too.
                state = "-"
                warning = f"Some devices cannot be built on this machine: {error}"
                note = page.paragraph((warning, "yellow"))
            rows.append([(name, "bold"), (state, "dim"), (description, "")])
        output.write_page(
            [
                page.table(("DEVICE", "STATUS", "DESCRIPTION"), rows),
                page.paragraph(),
                note,
            ]
        )


def _run_command(
    ctx: click.Context, provider: Any, words: tuple[str, ...], reports: tuple[str, ...]
) -> None:
    """Replace this process with the command, or run the command and write reports if any are requested."""
    if not words:
        raise click.UsageError(
            "Missing a device and a command, such as: accel simulate acme:2 -- pytest",
            ctx,
        )
    device, *command = words
    if command and command[0] == "--":
        command = command[1:]
    if not command:
        raise click.UsageError(
            f"Missing a command, such as: accel simulate {device} -- pytest", ctx
        )
    if reports:
        provider.check_report_files(reports)
    arguments = resolve_command(command)
    environ = {**os.environ, **provider.environment(device)}
    if reports:
        ctx.exit(provider.run_and_report(arguments, environ, reports, command))
    replace_process(ctx, arguments, environ)


def resolve_command(words: Sequence[str]) -> list[str]:
    """Return a command with the full path of its program in place of the program's name.

    A script that is not executable is run with this Python interpreter. Raises `LaunchError` if the program
    does not exist.
    """
    name, *arguments = words
    program = _find_program(name)
    if os.access(program, os.X_OK):
        return [program, *arguments]
    # The program is a Python script that is not executable.
    return [sys.executable, *words]


def replace_process(
    ctx: click.Context, arguments: list[str], environ: Mapping[str, str]
) -> None:
    """Replace this process with a command.

    On Windows, where a process cannot be replaced, the command runs as a child process instead.
    """
    if os.name == "nt":
        ctx.exit(subprocess.run(arguments, env=environ, check=False).returncode)
    sys.stdout.flush()
    os.execve(arguments[0], arguments, environ)


def _find_program(name: str) -> str:
    """Return the path of a program, where programs next to this Python, such as `pytest`, take precedence.

    Raises `LaunchError` if the program is not found.
    """
    python_folder = str(Path(sys.executable).parent)
    path = os.pathsep.join((python_folder, os.environ.get("PATH", os.defpath)))
    program = shutil.which(name, path=path)
    if program is not None:
        return program
    if name.endswith(".py") and Path(name).is_file():
        return name
    raise LaunchError(
        f"{name}: command not found on PATH or in {python_folder}. "
        f"For a module, use python -m {_module_of(name)}."
    )


def _module_of(name: str) -> str:
    """Return the module to run with `python -m` in place of a command that is not on PATH.

    For example, `torchrun` becomes `torch.distributed.run`.
    """
    if name.isidentifier() and find_spec(name):
        return name
    # `torchrun` is a console script, whose entry point contains the module.
    for script in metadata.entry_points(group="console_scripts", name=name):
        return script.module
    return name
