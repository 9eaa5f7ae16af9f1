"""`accel setup`: the command that installs the right torch, vendor package and plugin on a machine."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
from collections.abc import Iterator

import click

from accel_core.toolkit import answering, options, page, text, to_text
from accel_tools.setup import environment, installed, machines
from accel_tools.setup.formats import FORMATS
from accel_tools.setup.formats import command as line_of
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Plan
from accel_tools.setup.planning import names, planned

__all__ = ["command"]

_RUNS = ("pip", "uv")


def _version(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    if value and not re.fullmatch(r"\d+\.\d+(\.\d+)*", value):
        raise click.BadParameter(f"{value!r} is not a version, expected one such as 3.12 or 2.9.1.")
    return value or ""


@click.command("setup")
@click.argument("name", required=False, metavar="[NAME]", default="")
@click.option(
    "--format", "form", type=click.Choice(list(FORMATS)), help="[default: uv if installed, else pip]"
)
@click.option("--python", callback=_version, metavar="X.Y", help="Another Python than this one.")
@click.option("--torch", callback=_version, metavar="X.Y.Z", help="This version of torch.")
@click.option(
    "--machine", "file", metavar="FILE", help="Another machine: a bundle, or a tree of /sys and /dev."
)
@click.option("--run", is_flag=True, help="Run the command, after asking.")
@click.option("--yes", is_flag=True, help="With --run: do not ask.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    name: str,
    *,
    form: str | None,
    python: str,
    torch: str,
    file: str | None,
    run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Print the command that installs the right torch here.

    For the best accelerator of this machine, or for the backend NAME. It reads /sys, /dev and the files of
    drivers and toolkits, and asks nvidia-smi on Windows and in WSL2; it imports no torch, and installs
    nothing without --run. The command goes to stdout, the reasons to stderr. Exit status: 0 with a command, 1
    without one.
    """
    if name and name.lower() not in names():
        raise click.UsageError(f"NAME: {name!r} is not known, expected one of {', '.join(names())}.")
    _check(run=run, yes=yes, form=form, file=file, python=python, as_json=as_json)
    with answering(as_json=as_json) as output, _machine(file, python) as machine:
        plan = planned(machine, name.lower(), torch)
        chosen = form or environment.default_format()
        line = line_of(plan, chosen)
        wrong = installed.faults(plan, machine) if machine.is_here else ()
        blocked = tuple(environment.problems(chosen)) if machine.is_here and chosen in _RUNS and line else ()
        if as_json:
            output.write_json(_document(plan, machine, chosen, line, wrong, blocked))
        else:  # the command alone on stdout: accel setup --format dockerfile > Dockerfile
            click.echo(to_text(_page(plan, machine, wrong, blocked), output.width, in_colour=False), err=True)
            if line:
                output.write(line)
    if run and line:
        _run(plan, line, blocked, yes=yes)
    ctx.exit(0 if line else 1)


def _check(*, run: bool, yes: bool, form: str | None, file: str | None, python: str, as_json: bool) -> None:
    if yes and not run:
        raise click.UsageError("--yes goes with --run.")
    if run and as_json:
        raise click.UsageError("--run prints what the installer prints: leave out --json.")
    if run and (file or python):
        raise click.UsageError(
            "--run installs for this Python on this machine: leave out --machine and --python."
        )
    if run and form not in (None, *_RUNS):
        raise click.UsageError(f"--run needs --format pip or uv; {form} is a file to save.")


@contextlib.contextmanager
def _machine(file: str | None, python: str) -> Iterator[Machine]:
    if file is None:
        yield machines.here(python)
    else:
        with machines.saved(file, python) as machine:
            yield machine


def _run(plan: Plan, line: str, blocked: tuple[str, ...], *, yes: bool) -> None:
    """Run the command's parts one after the other; the first that fails ends it."""
    if blocked:
        raise click.ClickException(blocked[0])
    if trouble := environment.unreachable(plan):
        raise click.ClickException(f"nothing was run: {trouble}")
    commands = environment.runnable(line)
    for words in commands:
        click.echo(f"$ {shlex.join(words)}", err=True)
    if not yes:
        click.confirm("Run it?", abort=True, err=True)
    for words in commands:
        done = subprocess.run(words, check=False)
        if done.returncode:
            raise click.ClickException(f"{shlex.join(words)} ended with {done.returncode}")
    click.echo("Done. Next: accel list", err=True)


def _seen(plan: Plan, machine: Machine) -> str:
    hardware = plan.hardware
    labels = [f"{present.label} ({present.evidence})" for present in hardware.present] or ["no accelerator"]
    drivers = [f"NVIDIA's driver {hardware.nvidia}"] if hardware.nvidia else []
    drivers += [f"GPU architecture {', '.join(hardware.gfx)}"] if hardware.gfx else []
    kind = [hardware.kind] if hardware.kind else []
    where = f"{machine.system} on {machine.architecture}, Python {machine.python}"
    return "; ".join([*labels, *drivers, *kind, where])


def _page(plan: Plan, machine: Machine, wrong: tuple[str, ...], blocked: tuple[str, ...]) -> list[page.Part]:
    parts: list[page.Part] = [
        page.paragraph(("Seen: ", "bold"), (text.clean(_seen(plan, machine)), "")),
        *(page.paragraph(("Wrong: ", "bold yellow"), (fault, "")) for fault in wrong),
        page.Paragraph(),
    ]
    if plan.unknown:
        parts.append(page.paragraph(("Unknown: ", "bold"), (f"{plan.unknown}. See {plan.url}", "")))
    else:
        rows = [[(part.what, "bold"), (part.why, ""), (part.source, "dim")] for part in plan.parts]
        parts.append(page.Table(("PART", "WHY", "SOURCE"), rows))
    parts += [page.paragraph((f"Note: {note}", "dim")) for note in plan.notes]
    parts += [page.paragraph(("First: ", "bold yellow"), (problem, "")) for problem in blocked]
    return [*parts, page.Paragraph()]


def _document(
    plan: Plan,
    machine: Machine,
    form: str,
    line: str,
    wrong: tuple[str, ...],
    blocked: tuple[str, ...],
) -> dict[str, object]:
    return {
        "machine": {
            "system": machine.system,
            "architecture": machine.architecture,
            "python": machine.python,
            "kind": plan.hardware.kind,
            "nvidia_driver": plan.hardware.nvidia,
            "gfx": list(plan.hardware.gfx),
            "hardware": [present._asdict() for present in plan.hardware.present],
        },
        "target": plan.target,
        "backend": plan.backend,
        "torch": plan.torch,
        "torch_backend": plan.torch_backend,
        "packages": list(plan.packages),
        "parts": [part._asdict() for part in plan.parts],
        "unknown": plan.unknown,
        "url": plan.url,
        "notes": list(plan.notes),
        "wrong": list(wrong),
        "blocked": list(blocked),
        "format": form,
        "command": line,
    }
