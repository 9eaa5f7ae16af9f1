"""`accel setup`: print the command that installs the right torch, vendor package and plugin."""

from __future__ import annotations

import difflib
import re
import shlex
import subprocess

import click

from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.text import one_line
from accel_tools.setup import environment, installed, machines
from accel_tools.setup.formats import FORMATS, HERE
from accel_tools.setup.formats import command as line_of
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Plan, for_installation, for_uv
from accel_tools.setup.planning import names, planned, toolkits
from accel_tools.setup.recipes import parsed_version

__all__ = ["command"]

#: What else people call the hardware, and the name that plans for it.
_MAKERS = {
    "nvidia": "cuda",
    "amd": "rocm",
    "hip": "rocm",
    "intel": "xpu",
    "apple": "mps",
    "metal": "mps",
    "ascend": "npu",
    "huawei": "npu",
    "cann": "npu",
    "gaudi": "hpu",
    "habana": "hpu",
    "google": "tpu",
    "cambricon": "mlu",
    "moore": "musa",
    "mthreads": "musa",
    "tecorigin": "sdaa",
    "biren": "supa",
    "kunlunxin": "klxpu",
    "rebellions": "rbln",
}
#: The first number of any driver of NVIDIA's for which torch has a build; no toolkit's is as high.
_FIRST_DRIVER = 300
_SUCH = {"driver": "570.86", "toolkit": "12.8", "python": "3.12", "torch": "2.9.1"}


def _version(_ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    expression = r"\d+(\.\w+)*" if param.name == "toolkit" else r"\d+\.\d+(\.\d+)*"
    if value and not re.fullmatch(expression, value):
        such = _SUCH[param.name or ""]
        raise click.BadParameter(
            f"{value!r} is not a version, expected one such as {such}."
        )
    return value or ""


def _name(value: str) -> str:
    name = value.lower()
    if not name or name in names():
        return name
    close = _MAKERS.get(name) or next(
        iter(difflib.get_close_matches(name, [*names(), *_MAKERS], n=1)), ""
    )
    meant = f" Did you mean {_MAKERS.get(close, close)!r}?" if close else ""
    raise click.UsageError(
        f"NAME: {value!r} is not known, expected one of {', '.join(names())}.{meant}"
    )


@click.command("setup")
@click.argument("name", required=False, metavar="[NAME]", default="")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    help="[default: uv if installed, else pip]",
)
@click.option(
    "--python",
    callback=_version,
    metavar="X.Y",
    help="Version of Python, if not this one.",
)
@click.option(
    "--torch", callback=_version, metavar="X.Y.Z", help="Version of torch to install."
)
@click.option(
    "--driver",
    callback=_version,
    metavar="VERSION",
    help="Version of NVIDIA's driver to plan for.",
)
@click.option(
    "--toolkit",
    callback=_version,
    metavar="VERSION",
    help="Version of CUDA, ROCm or CANN to plan for.",
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
    driver: str,
    toolkit: str,
    run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Print the command that installs the right torch here.

    The command is for the best accelerator of this machine, or for NAME, a backend or `rocm`. For hardware on
    another machine, give --driver or --toolkit; these versions are not checked. It reads /sys, /dev and the
    files of drivers and toolkits, and runs nvidia-smi on Windows and in WSL2. It does not import torch, and
    installs nothing without --run. The command goes to stdout, the reasons to stderr. Exit status: 0 with a
    command, 1 without one.
    """
    _check(run=run, yes=yes, form=form, python=python, as_json=as_json)
    name = _name(name)
    _check_given(name, driver, toolkit)
    with answering(as_json=as_json) as output:
        machine = machines.here(python)
        chosen = form or environment.default_format()
        plan = planned(machine, name, torch, driver=driver, toolkit=toolkit)
        plan = for_installation(plan, is_new=chosen not in HERE)
        if chosen == "uv":
            plan = for_uv(plan)
        line = line_of(plan, chosen)
        wrong = installed.faults(plan, machine)
        blocked: tuple[str, ...] = ()
        if chosen in HERE and line:
            blocked = tuple(environment.problems(chosen))
        if as_json:
            output.write_json(_document(plan, machine, chosen, line, wrong, blocked))
        else:  # the command alone on stdout: accel setup --format dockerfile > Dockerfile
            click.echo(
                page.to_text(
                    _page(plan, machine, wrong, blocked), output.width, in_colour=False
                ),
                err=True,
            )
            if line:
                output.write(line)
    if run and line:
        _run(plan, line, blocked, yes=yes)
    ctx.exit(0 if line else 1)


def _check(
    *,
    run: bool,
    yes: bool,
    form: str | None,
    python: str,
    as_json: bool,
) -> None:
    if yes and not run:
        raise click.UsageError("--yes needs --run.")
    if run and as_json:
        raise click.UsageError("--run prints the installer's output: leave out --json.")
    if run and python:
        raise click.UsageError("--run installs for this Python: leave out --python.")
    if run and form not in (None, *HERE):
        raise click.UsageError(
            f"--run needs --format pip or uv; {form} is a file to save."
        )


def _check_given(name: str, driver: str, toolkit: str) -> None:
    if (driver or toolkit) and not name:
        option = f"--driver {driver}" if driver else f"--toolkit {toolkit}"
        meant = "cuda" if driver else "NAME"
        raise click.UsageError(
            f"{option} needs the name of its backend: accel setup {meant} {option}"
        )
    if driver and name != "cuda":
        raise click.UsageError(
            f"--driver is the version of NVIDIA's driver, and goes with cuda, not {name}."
        )
    if driver and float(driver.split(".", maxsplit=1)[0]) < _FIRST_DRIVER:
        what = f"--driver: {driver!r} is not a version of NVIDIA's driver, expected one such as 570.86."
        raise click.UsageError(f"{what} Did you mean --toolkit {driver}?")
    if not toolkit:
        return
    known = toolkits()
    if name not in known:
        named = ", ".join(f"{label} ({key})" for key, label in known.items())
        raise click.UsageError(f"--toolkit has no effect on {name}; it is for {named}.")
    major = parsed_version(toolkit)
    if name == "cuda" and major and major.major >= _FIRST_DRIVER:
        what = f"--toolkit: {toolkit!r} is not a version of CUDA, expected one such as 12.8."
        raise click.UsageError(f"{what} Did you mean --driver {toolkit}?")
    if name in ("cuda", "rocm") and not re.fullmatch(r"\d+\.\d+(\.\d+)*", toolkit):
        such = "12.8" if name == "cuda" else "6.4"
        raise click.UsageError(
            f"--toolkit: {toolkit!r} is not a version of {known[name]}, expected one such as {such}."
        )


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
            raise click.ClickException(
                f"{shlex.join(words)} ended with {done.returncode}"
            )
    click.echo("Done. Next: accel list", err=True)


def _seen(plan: Plan, machine: Machine) -> str:
    hardware = plan.hardware
    labels = [
        f"{present.label} ({present.evidence})" for present in hardware.present
    ] or ["no accelerator"]
    drivers = [f"NVIDIA's driver {hardware.nvidia}"] if hardware.nvidia else []
    drivers += [f"GPU architecture {', '.join(hardware.gfx)}"] if hardware.gfx else []
    kind = [hardware.kind] if hardware.kind else []
    where = f"{machine.system} on {machine.architecture}, Python {machine.python}"
    return "; ".join([*labels, *drivers, *kind, where])


def _page(
    plan: Plan, machine: Machine, wrong: tuple[str, ...], blocked: tuple[str, ...]
) -> list[page.Part]:
    given = ", ".join(plan.given)
    parts: list[page.Part] = [
        page.paragraph(("Seen: ", "bold"), (one_line(_seen(plan, machine)), "")),
        *(
            [page.paragraph(("As given, not found here: ", "bold"), (given, ""))]
            if given
            else []
        ),
        *(page.paragraph(("Wrong: ", "bold yellow"), (fault, "")) for fault in wrong),
        page.paragraph(),
    ]
    if plan.unknown:
        parts.append(
            page.paragraph(
                ("Unknown: ", "bold"), (f"{plan.unknown}. See {plan.url}", "")
            )
        )
    else:
        rows = [
            [(part.what, "bold"), (part.why, ""), (part.source, "dim")]
            for part in plan.parts
        ]
        parts.append(page.table(("PART", "WHY", "SOURCE"), rows))
    parts += [page.paragraph((f"Note: {note}", "dim")) for note in plan.notes]
    parts += [
        page.paragraph(("First: ", "bold yellow"), (problem, "")) for problem in blocked
    ]
    return [*parts, page.paragraph()]


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
        "given": list(plan.given),
        "target": plan.target,
        "backend": plan.backend,
        "torch": plan.torch,
        "torch_backend": plan.torch_backend,
        "torch_index": plan.torch_index,
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
