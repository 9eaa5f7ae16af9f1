"""`accel setup`: print the command that installs the right torch, vendor package and plugin."""

from __future__ import annotations

import difflib
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.text import one_line
from accel_tools.commands import into as into_folder
from accel_tools.setup import environment, installed, machines
from accel_tools.setup.formats import FORMATS, HERE
from accel_tools.setup.formats import command as format_plan
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Plan, for_installation, for_uv
from accel_tools.setup.planning import names, planned, toolkits
from accel_tools.setup.recipes import parsed_version

__all__ = ["command"]

#: Names of vendors and toolkits that users may type, and the name to suggest for each.
_ALIASES = {
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
    "aws": "neuron",
    "trainium": "neuron",
}
#: A limit between the major versions of NVIDIA's drivers, which are higher, and of toolkits,
#: which are lower.
_MIN_DRIVER = 300
_INTO = (
    "--into needs names, such as: accel setup --into FOLDER cuda=12.6 rocm=7.2 cpu. It cannot be used "
    "with --run, --python, --toolkit or --json."
)
#: A valid version for each option, for messages.
_EXAMPLES = {"driver": "570.86", "toolkit": "12.8", "python": "3.12", "torch": "2.9.1"}


def _version(_ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """Return the version; raise `click.BadParameter` if it is malformed."""
    pattern = r"\d+(\.\w+)*" if param.name == "toolkit" else r"\d+\.\d+(\.\d+)*"
    if value and not re.fullmatch(pattern, value):
        example = _EXAMPLES[param.name or ""]
        raise click.BadParameter(
            f"{value!r} is not a version; expected a version such as {example}."
        )
    return value or ""


def _name(value: str) -> str:
    """Return the name in lower case; raise `click.UsageError` if it is unknown."""
    name = value.lower()
    if not name or name in names():
        return name
    suggestion = _ALIASES.get(name, "")
    if not suggestion:
        close = difflib.get_close_matches(name, [*names(), *_ALIASES], n=1)
        suggestion = _ALIASES.get(close[0], close[0]) if close else ""
    message = f"unknown NAME {value!r}; expected one of {', '.join(names())}."
    if suggestion:
        message += f" Did you mean {suggestion!r}?"
    raise click.UsageError(message)


@click.command("setup", cls=into_folder.SetupCommand)
@click.argument("requested", nargs=-1, metavar="[NAME]... [-- PACKAGES]")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Make an environment for each NAME in FOLDER.",
)
@click.option(
    "--requirements",
    "-r",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --into: packages for every environment, as after --.",
)
@click.option(
    "--torch-index",
    metavar="URL",
    default="",
    help="With --into: a mirror of https://download.pytorch.org/whl.",
)
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
@click.option("--yes", is_flag=True, help="With --run or --into: do not ask.")
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    requested: tuple[str, ...],
    *,
    into: Path | None,
    requirements: Path | None,
    torch_index: str,
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
    installs nothing without --run. The command goes to stdout, the reasons to stderr. Exit status: 0 =
    success, 1 = no command is known, or it failed, 2 = usage error.

    With --into FOLDER, each NAME (`cuda`, or `cuda=12.6` with the toolkit's version) gets an environment in
    FOLDER, with the same PACKAGES in each. `FOLDER/bin/python` starts the one that fits the machine.
    """
    if into is not None:
        if not requested or any((run, python, toolkit, as_json)):
            raise click.UsageError(_INTO)
        request = into_folder.Request(
            into, requested, ctx.obj, requirements, torch_index
        )
        _set_up_folder(request, form, torch, driver, yes=yes)
        return
    if len(requested) > 1 or any((ctx.obj, requirements, torch_index)):
        raise click.UsageError(
            "Several names, packages, --requirements and --torch-index need --into FOLDER."
        )
    _check_options(run=run, yes=yes, form=form, python=python, as_json=as_json)
    name = _name("".join(requested))
    _check_given(name, driver, toolkit)
    status = _print_plan(
        name, form, python, torch, driver, toolkit, run=run, yes=yes, as_json=as_json
    )
    ctx.exit(status)


def _set_up_folder(
    request: into_folder.Request,
    form: str | None,
    torch: str,
    driver: str,
    *,
    yes: bool,
) -> None:
    """Check the request's names, and make the environments of the folder."""
    _check_names(request.names)
    with answering(as_json=False):
        installer = into_folder.default_form(form)
        into_folder.set_up(request, installer, torch, driver, yes=yes)


def _print_plan(
    name: str,
    form: str | None,
    python: str,
    torch: str,
    driver: str,
    toolkit: str,
    *,
    run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Print the command, and run it if `run`.

    Returns the exit status, which is 1 if no command is known.
    """
    with answering(as_json=as_json) as output:
        machine = machines.here(python)
        chosen = form or environment.default_format()
        plan = planned(machine, name, torch, driver=driver, toolkit=toolkit)
        plan = for_installation(plan, is_new=chosen not in HERE)
        if chosen == "uv":
            plan = for_uv(plan)
        line = format_plan(plan, chosen)
        wrong = installed.faults(plan, machine)
        blocked: tuple[str, ...] = ()
        if chosen in HERE and line:
            blocked = tuple(environment.problems(chosen))
        if as_json:
            output.write_json(_document(plan, machine, chosen, line, wrong, blocked))
        else:
            # Only the command goes to stdout, so that `accel setup --format dockerfile > Dockerfile`
            # works.
            parts = _page(plan, machine, wrong, blocked)
            click.echo(page.to_text(parts, output.width, in_colour=False), err=True)
            if line:
                output.write(line)
    if run and line:
        _run(plan, line, blocked, yes=yes)
    return 0 if line else 1


# --- Options -------------------------------------------------------------------------


def _check_options(
    *,
    run: bool,
    yes: bool,
    form: str | None,
    python: str,
    as_json: bool,
) -> None:
    """Raise `click.UsageError` for options that contradict each other."""
    if yes and not run:
        raise click.UsageError("--yes needs --run.")
    if run and as_json:
        raise click.UsageError("--run prints the installer's output: leave out --json.")
    if run and python:
        raise click.UsageError("--run installs for this Python: leave out --python.")
    if run and form not in (None, *HERE):
        raise click.UsageError(
            f"--run needs --format pip or uv; --format {form} cannot be run."
        )


def _check_names(names: Sequence[str]) -> None:
    """Raise `click.UsageError` for a malformed name of `--into`, such as `cuda=12.6`."""
    for each in names:
        name, _, toolkit = each.partition("=")
        _check_given(_name(name), "", toolkit)


def _check_given(name: str, driver: str, toolkit: str) -> None:
    """Raise `click.UsageError` if the driver or the toolkit does not fit the name."""
    if driver:
        _check_driver(name, driver)
    if toolkit:
        _check_toolkit(name, toolkit)


def _check_driver(name: str, driver: str) -> None:
    if not name:
        raise _needs_name(f"--driver {driver}", "cuda")
    if name != "cuda":
        raise click.UsageError(
            f"--driver is the version of NVIDIA's driver; it has no effect on {name}."
        )
    if int(driver.partition(".")[0]) < _MIN_DRIVER:
        raise click.UsageError(
            f"--driver: {driver!r} is not a version of NVIDIA's driver; expected a version "
            f"such as {_EXAMPLES['driver']}. Did you mean --toolkit {driver}?"
        )


def _check_toolkit(name: str, toolkit: str) -> None:
    if not name:
        raise _needs_name(f"--toolkit {toolkit}", "NAME")
    known = toolkits()
    if name not in known:
        listed = ", ".join(f"{label} ({key})" for key, label in known.items())
        raise click.UsageError(
            f"--toolkit has no effect on {name}; it is the version of one of: {listed}."
        )
    version = parsed_version(toolkit)
    if name == "cuda" and version is not None and version.major >= _MIN_DRIVER:
        raise click.UsageError(
            f"--toolkit: {toolkit!r} is not a version of CUDA; expected a version such as "
            f"12.8. Did you mean --driver {toolkit}?"
        )
    if name in ("cuda", "rocm") and not re.fullmatch(r"\d+\.\d+(\.\d+)*", toolkit):
        example = "12.8" if name == "cuda" else "6.4"
        raise click.UsageError(
            f"--toolkit: {toolkit!r} is not a version of {known[name]}; expected a version "
            f"such as {example}."
        )


def _needs_name(option: str, name: str) -> click.UsageError:
    return click.UsageError(
        f"{option} needs the name of a backend: accel setup {name} {option}"
    )


# --- Running -------------------------------------------------------------------------


def _run(plan: Plan, line: str, blocked: tuple[str, ...], *, yes: bool) -> None:
    """Run the commands of `line` one after the other, after asking unless `yes`.

    Raises `click.ClickException` if a command fails, or before the first command if the
    environment or the index would make it fail.
    """
    if blocked:
        raise click.ClickException(blocked[0])
    unreachable = environment.unreachable(plan)
    if unreachable:
        raise click.ClickException(f"the command was not run: {unreachable}")
    commands = environment.runnable(line)
    for words in commands:
        click.echo(f"$ {shlex.join(words)}", err=True)
    if not yes:
        click.confirm("Run it?", abort=True, err=True)
    for words in commands:
        status = subprocess.run(words, check=False).returncode
        if status:
            raise click.ClickException(
                f"{shlex.join(words)} exited with status {status}"
            )
    click.echo("Done. Next step: accel list", err=True)


# --- The page ------------------------------------------------------------------------


def _page(
    plan: Plan, machine: Machine, wrong: tuple[str, ...], blocked: tuple[str, ...]
) -> list[page.Part]:
    parts = [_labelled("Detected", one_line(_detected(plan, machine)))]
    if plan.given:
        parts.append(_labelled("Assumed (not detected)", ", ".join(plan.given)))
    parts += [_labelled("Problem", fault, "bold yellow") for fault in wrong]
    parts.append(page.paragraph())
    if plan.unknown:
        parts.append(_labelled("Unknown", f"{plan.unknown}. See {plan.url}"))
    else:
        rows: list[list[page.Cell]] = []
        for part in plan.parts:
            rows.append([(part.what, "bold"), (part.why, ""), (part.source, "dim")])
        parts.append(page.table(("PART", "WHY", "SOURCE"), rows))
    parts += [page.paragraph((f"Note: {note}", "dim")) for note in plan.notes]
    parts += [_labelled("First", problem, "bold yellow") for problem in blocked]
    return [*parts, page.paragraph()]


def _labelled(label: str, text: str, style: str = "bold") -> page.Part:
    return page.paragraph((f"{label}: ", style), (text, ""))


def _detected(plan: Plan, machine: Machine) -> str:
    """Return the detected hardware, drivers and platform, separated by semicolons."""
    hardware = plan.hardware
    facts = [f"{device.label} ({device.evidence})" for device in hardware.present]
    if not facts:
        facts.append("no accelerator")
    if hardware.nvidia:
        facts.append(f"NVIDIA's driver {hardware.nvidia}")
    if hardware.gfx:
        facts.append(f"GPU architecture {', '.join(hardware.gfx)}")
    if hardware.kind:
        facts.append(hardware.kind)
    facts.append(f"{machine.system} on {machine.architecture}, Python {machine.python}")
    return "; ".join(facts)


# --- The document --------------------------------------------------------------------


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
            "hardware": [device._asdict() for device in plan.hardware.present],
        },
        "given": list(plan.given),
        "target": plan.target,
        "backend": plan.backend,
        "torch": plan.torch,
        "torch_backend": plan.torch_backend,
        "torch_index": plan.torch_index,
        "packages": list(plan.packages),
        "package_index": plan.package_index,
        "parts": [part._asdict() for part in plan.parts],
        "unknown": plan.unknown,
        "url": plan.url,
        "notes": list(plan.notes),
        "wrong": list(wrong),
        "blocked": list(blocked),
        "format": form,
        "command": line,
    }
