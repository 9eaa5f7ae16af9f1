"""The `accel` command: it shows the installed backends, their features, and which one is chosen.

A distribution adds a command with an entry point of group `accel.commands`. The entry
point has the command's name, and its value names a package. The package's module with
the command's name contains the click command, `command`. The package is imported when
the command is called. A first-party package has a line for each of its commands in
`SUMMARIES`, for `accel --help`. Its function `remarks` gets the verdicts of `accel list`
and `accel why`, and returns lines to show below them.
"""

# Once imported, the command's module `list` hides the built-in `list` in this module.
from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from accel_core import __version__, packages
from accel_core.backend import Provenance
from accel_core.cli.output import OneOf
from accel_core.errors import SettingError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.hardware.vendors import install_command
from accel_core.log import logged_by
from accel_core.sandbox.guard import preserved_state, stdout_to_stderr
from accel_core.settings import VARIABLES, permitted_entry_points
from accel_core.text import did_you_mean, one_line
from accel_core.torch_import import IMPORTED
from accel_core.verdict import Verdict

T = TypeVar("T")

#: The group of the entry points that name a package of commands.
GROUP = "accel.commands"
#: The commands of the core, with their lines in `accel --help`. Each line is the first
#: sentence of the command's help.
SUMMARIES = {
    "completion": "Print the script for shell completion.",
    "help": "Show the help of a command, or of the environment variables.",
    "list": "List the backends, and show why some of them are not usable.",
    "why": "Show which backend is chosen, and why others were skipped.",
}
#: The first-party distribution of each command that the core does not contain.
COMMAND_OWNERS = {
    **dict.fromkeys(
        ("bench", "declarations", "doctor", "info", "python", "setup"), "accel-tools"
    ),
    **dict.fromkeys(("deepspeed", "env", "frameworks", "ops", "run"), "accel-train"),
    **dict.fromkeys(("new", "simulate", "try", "verify"), "accel-testing"),
}


def main() -> None:
    """Run the `accel` command with this process's arguments, then end the process with its exit status."""
    # Shell completion and help use the name `accel` for `python -m accel_core` too.
    accel(prog_name="accel")


# --- The commands --------------------------------------------------------------------------------------


def installed_commands() -> dict[str, Provenance | None]:
    """Return every installed command by name, sorted.

    If two distributions add the same command, the first one in the search order is
    used. The name of a built-in command always means the built-in command. The value of
    a built-in command is `None`.
    """
    builtin_names = SUMMARIES.keys()
    commands: dict[str, Provenance | None] = dict.fromkeys(builtin_names)
    for entry_point in _command_entry_points():
        name, distribution = entry_point.name, entry_point.distribution
        # No other distribution may replace a first-party command.
        owner = COMMAND_OWNERS.get(name, distribution)
        is_first_with_name = name not in commands
        if owner == distribution and is_first_with_name:
            commands[name] = entry_point
    return dict(sorted(commands.items()))


def _command_entry_points() -> list[Provenance]:
    """Return the command entry points that the policy permits.

    If the policy is invalid, only accel's own commands are returned. Each of them
    reports the invalid setting.
    """
    try:
        return permitted_entry_points(GROUP)
    except SettingError:
        own_commands = []
        for entry_point in packages.entry_points(GROUP):
            if COMMAND_OWNERS.get(entry_point.name) == entry_point.distribution:
                own_commands.append(entry_point)
        return own_commands


def _call_with_package(
    entry_point: Provenance | None, function: Callable[[Any], T]
) -> T:
    """Import a command's package, and call `function` with it. For a built-in command,
    `entry_point` is `None` and the package is this module.

    Raises `ClickException` if the package or the function fails.
    """
    if entry_point is None:
        own_package = sys.modules[__name__]
        return function(own_package)
    try:
        with stdout_to_stderr(), preserved_state(entry_point):
            return function(entry_point.load())
    except PLUGIN_ERRORS as error:
        raise click.ClickException(
            f"{entry_point} cannot be used: {one_line(root_cause(error))}"
        ) from error


def _lines_from_package(
    entry_point: Provenance | None, read: Callable[[Any], Iterable[object]]
) -> list[str]:
    """Return the lines that `read` returns for a command's package, or its error if the
    package fails.
    """

    def read_lines(package: Any) -> list[str]:
        return [one_line(str(line)) for line in read(package)]

    try:
        return _call_with_package(entry_point, read_lines)
    except click.ClickException as error:
        return [error.message]


def _summary(name: str, entry_point: Provenance | None) -> str:
    """Return a command's line in the output of `accel --help`.

    Third-party packages are not imported for this, because the import could hang or
    exit.
    """
    is_third_party = entry_point is not None and name not in COMMAND_OWNERS
    if is_third_party:
        return f"A command of {entry_point}."

    def read_summary(package: Any) -> list[object]:
        return [package.SUMMARIES[name]]

    (summary,) = _lines_from_package(entry_point, read_summary)
    return summary


def remarks(verdicts: Iterable[Verdict]) -> list[str]:
    """Return lines to show below the backends.

    The function `remarks` of each first-party command package gets the `verdicts` on
    the backends, and returns its lines.
    """

    def read_remarks(package: Any) -> Iterable[object]:
        if not hasattr(package, "remarks"):
            return ()
        lines: Iterable[object] = package.remarks(verdicts)
        return lines

    return _lines_from_packages(read_remarks)


def environments() -> list[str]:
    """Return lines about the running Python environment.

    The function `environment` of each first-party command package returns one line, or
    an empty string.
    """

    def read_environment(package: Any) -> Iterable[object]:
        line = ""
        if hasattr(package, "environment"):
            line = package.environment()
        return [line] if line else []

    return _lines_from_packages(read_environment)


def _lines_from_packages(read: Callable[[Any], Iterable[object]]) -> list[str]:
    """Return the lines that `read` returns for each first-party command package."""
    # Several commands have the same package, which is read once.
    entry_point_by_package = {}
    for name, entry_point in installed_commands().items():
        if entry_point is not None and name in COMMAND_OWNERS:
            entry_point_by_package[entry_point.module] = entry_point
    lines: list[str] = []
    for entry_point in entry_point_by_package.values():
        lines += _lines_from_package(entry_point, read)
    return lines


def _missing_command_message(name: str, installed: Iterable[str]) -> str:
    """Return the message for a command that is not installed."""
    if name not in COMMAND_OWNERS:
        return f"No such command {name!r}.{did_you_mean(name, installed)}"
    distribution = COMMAND_OWNERS[name]
    install = install_command(distribution)
    return (
        f"accel {name} is a command of {distribution}, which is not installed. "
        f"Next step: {install}"
    )


class _Group(click.Group):
    """A click group that lists its commands without importing them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Ctrl-C ends the process by the signal SIGINT, so that a loop
        in a shell script ends too.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # A shell ends its loop only if the signal ends the command. If the command
            # exits with a status instead, the loop continues.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # The reader may have closed the pipe, or stdout may be closed.
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            signal.raise_signal(signal.SIGINT)
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        # Not `list(...)`, because the command's module `list` hides the built-in here.
        return [*installed_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command. Raises `click.UsageError` if it is not
        installed.
        """
        builtin_command = super().get_command(ctx, cmd_name)
        if builtin_command is not None:
            return builtin_command
        installed = installed_commands()
        if cmd_name not in installed:
            if ctx.resilient_parsing:  # Shell completion prints no errors.
                return None
            raise click.UsageError(_missing_command_message(cmd_name, installed), ctx)

        def import_command(package: Any) -> click.Command:
            module = import_module(f"{package.__name__}.{cmd_name}")
            command: click.Command = module.command
            return command

        return _call_with_package(installed[cmd_name], import_command)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the list of commands, then how to install the missing ones."""
        installed = installed_commands()
        rows = []
        for name, entry_point in installed.items():
            rows.append((one_line(name), _summary(name, entry_point)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
        missing_by_distribution: dict[str, list[str]] = {}
        for name, distribution in COMMAND_OWNERS.items():
            if name not in installed:
                missing_by_distribution.setdefault(distribution, []).append(name)
        missing_rows = []
        for distribution, names in missing_by_distribution.items():
            missing_rows.append((install_command(distribution), ", ".join(names)))
        if missing_rows:
            with formatter.section("Commands that are not installed"):
                formatter.write_dl(missing_rows)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Return the commands and options that begin with `incomplete`. No command
        package is imported.
        """
        items = []
        for name in installed_commands():
            if name.startswith(incomplete):
                items.append(CompletionItem(name, help=SUMMARIES.get(name)))
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]


def _set_import_variable(
    _ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]
) -> None:
    """Set `ACCEL_IMPORT` for this process and its children to the names of `--import`."""
    for name in names:
        if not packages.is_installed(name):
            raise click.BadParameter(
                f"The module {name!r} is not installed. Next step: install it, or correct "
                "its name."
            )
    if not names:
        return
    all_names = [*names]
    # The variable may contain names already, separated by commas.
    previous_names = os.environ.get(IMPORTED)
    if previous_names:
        all_names.append(previous_names)
    os.environ[IMPORTED] = ",".join(all_names)


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message="accel-core %(version)s")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Log each step of choosing a backend to stderr.",
)
@click.option(
    "--import", "imported", metavar="PACKAGE", multiple=True, expose_value=False,
    callback=_set_import_variable,
    help="After torch, import PACKAGE too, which adds a device to torch. May be repeated.",
)  # fmt: skip
@click.pass_context
def accel(ctx: click.Context, *, verbose: bool) -> None:
    """Show which accelerators PyTorch can use here, and which one is chosen.

    Each backend is probed in a separate process. `accel list` works without torch. Exit status: 0 success,
    1 a problem was found, 2 usage error.

    \b
    accel list                    show the backends, and which of them are usable
    accel why npu                 show why npu is or is not usable, in detail
    accel info cuda --json        show the devices and features of cuda, as JSON
    accel run train.py            start one process for each device on this host
    accel help variables          show the environment variables
    """
    if verbose:
        ctx.with_resource(logged_by(logging.StreamHandler()))


def _help_topics() -> dict[str, None]:
    """Return the topics of `accel help`, each once: the settings and all commands."""
    return dict.fromkeys(("variables", *installed_commands(), *COMMAND_OWNERS))


_TOPIC = OneOf("command", _help_topics)


@accel.command("help")
@click.argument("topic", required=False, metavar="[COMMAND|variables]", type=_TOPIC)
@click.pass_context
def show_help(ctx: click.Context, topic: str | None) -> None:
    """Show the help of a command, or of the environment variables."""
    if topic == "variables":
        rows = [(variable.name, variable.help) for variable in VARIABLES]
        formatter = ctx.make_formatter()
        with formatter.section("Environment variables"):
            formatter.write_dl(rows)
        click.echo(formatter.getvalue().rstrip())
        return
    arguments = ["--help"] if topic is None else [topic, "--help"]
    accel.main(arguments, prog_name="accel")


@accel.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def print_completion_script(shell: str) -> None:
    """Print the script for shell completion.

    \b
    bash (4.4 or newer), in ~/.bashrc:    eval "$(accel completion bash)"
    zsh, in ~/.zshrc:                     eval "$(accel completion zsh)"
    fish:   accel completion fish > ~/.config/fish/completions/accel.fish
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None  # click completes in each of the three shells
    completion = completion_class(accel, {}, "accel", "_ACCEL_COMPLETE")
    # Not `completion.source()`, because for bash it runs bash to get its version, which
    # fails if bash is not installed.
    click.echo(ShellComplete.source(completion))
