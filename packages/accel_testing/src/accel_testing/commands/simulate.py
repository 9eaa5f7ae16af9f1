"""`accel simulate`: any command, with simulated devices."""

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

__all__ = ["become", "command", "runnable"]


class _Command(click.Command):
    """Behind a device all words are the command's; where an option is first, others may stand anywhere."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = args[:1] != ["--"] and "".join(
            args[:1]
        ).startswith("-")
        return super().parse_args(ctx, args)


def _names(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Devices for the first word, of --build for each; the rest is the command, for which files complete."""
    found = simulator()
    if found is None or (ctx.params.get("words") and not ctx.params.get("building")):
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(name)
        for name in found.load().devices()
        if name.startswith(incomplete)
    ]


@click.command("simulate", cls=_Command)
@click.option(
    "--list",
    "listing",
    is_flag=True,
    help="What can be simulated, and what is built already.",
)
@click.option(
    "--build",
    "building",
    is_flag=True,
    help="Build these devices, or all, and run nothing.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where --build puts the libraries, for machines without a compiler.",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FILE",
    help="Write what in the command's code is for one vendor, by ending: .md, .json, .sarif. Repeatable.",
)
@click.argument(
    "words",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="DEVICE[:COUNT] [--] COMMAND...",
    shell_complete=_names,
)
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    *,
    listing: bool,
    building: bool,
    output: Path | None,
    reports: tuple[str, ...],
) -> None:
    """Run a command with simulated devices, for tests.

    accel simulate acme:2 -- pytest tests runs pytest with ACCEL_SIMULATE=acme:2, which child processes
    inherit: every Python process of the command sees two simulated devices. The exit status is the command's.
    --report cuda.md lists each place outside torch that is written for one vendor. Needs the distribution
    accel-simulated, and a C++ compiler the first time for each torch.
    """
    if output is not None and not building:
        raise click.UsageError(
            "--output goes with --build: accel simulate --build acme --output FOLDER"
        )
    if reports and (listing or building):
        raise click.UsageError(
            "--report is of a command that is run, and --list and --build run none.",
            ctx,
        )
    try:
        provider = _provider()
        if listing:
            _list(provider)
        elif building:
            _build(provider, words, output)
        else:
            _run(ctx, provider, words, reports)
    except AccelError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(status_of(error))


def _provider() -> Any:
    found = simulator()
    if found is None:
        raise IntegrationMissingError(
            f"accel simulate needs accel-simulated: {vendors.install_command('accel-simulated')}"
        )
    return found.load()


def _build(provider: Any, names: tuple[str, ...], folder: Path | None) -> None:
    for name, made in provider.build(names, folder):
        click.echo(f"{name}: {made}")
    if folder is not None:
        found = f"ACCEL_SIMULATE_LIBRARY={folder.resolve()}"
        click.echo(f"Where there is the same torch and no compiler, set {found}")


def _list(provider: Any) -> None:
    with answering(as_json=False) as output:
        note = page.paragraph(
            ("accel simulate acme:2 -- COMMAND runs a command on two acme.", "dim")
        )
        rows = []
        for name, what in {**provider.devices(), **provider.declared()}.items():
            try:
                here = "built" if provider.built(name) else "not built"
            except (
                AccelError
            ) as error:  # that it cannot be built here must not hide what there is
                here, note = (
                    "-",
                    page.paragraph(
                        (f"Not everything can be built here: {error}", "yellow")
                    ),
                )
            rows.append([(name, "bold"), (here, "dim"), (what, "")])
        output.write_page(
            [page.table(("DEVICE", "HERE", "WHAT IT IS"), rows), page.paragraph(), note]
        )


def _run(
    ctx: click.Context, provider: Any, words: tuple[str, ...], reports: tuple[str, ...]
) -> None:
    """Become the command; wait for it where its reports are to be written."""
    if not words:
        raise click.UsageError(
            "Missing a device and a command, such as: accel simulate acme:2 -- pytest",
            ctx,
        )
    device, *rest = words
    wanted = rest[1:] if rest[:1] == ["--"] else rest
    if not wanted:
        raise click.UsageError(
            f"Missing a command, such as: accel simulate {device} -- pytest", ctx
        )
    if reports:
        provider.check_reports(reports)
    arguments = runnable(wanted)
    environ = {**os.environ, **provider.environment(device)}
    if reports:
        ctx.exit(provider.run_recorded(arguments, environ, reports, wanted))
    become(ctx, arguments, environ)


def runnable(words: Sequence[str]) -> list[str]:
    """Return the command with its full path; a script that is not executable is run with this Python.

    Raises `LaunchError` if the command does not exist.
    """
    program = _found(words[0])
    return (
        [program, *words[1:]]
        if os.access(program, os.X_OK)
        else [sys.executable, *words]
    )


def become(
    ctx: click.Context, arguments: list[str], environ: Mapping[str, str]
) -> None:
    """Replace this process by the command; on Windows, which cannot do that, wait for it."""
    if os.name == "nt":
        ctx.exit(subprocess.run(arguments, env=environ, check=False).returncode)
    sys.stdout.flush()
    os.execve(arguments[0], arguments, environ)


def _found(name: str) -> str:
    """The command's file: beside this Python first, so that `pytest` and `python` are this environment's.

    Raises `LaunchError` where there is none.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which(
        name, path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath)))
    )
    if found is None and name.endswith(".py") and Path(name).is_file():
        return name
    if found is None:
        # torchrun, where it lies elsewhere, is torch.distributed.run.
        scripts = [
            script.module
            for script in metadata.entry_points(group="console_scripts", name=name)
        ]
        module = (
            name
            if name.isidentifier() and find_spec(name)
            else next(iter(scripts), name)
        )
        what = f"{name}: there is no such command on PATH nor in {beside}"
        raise LaunchError(f"{what}. For a module write: python -m {module}")
    return found
