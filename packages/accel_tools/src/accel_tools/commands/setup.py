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
from accel_tools.setup.formats import FORMATS, INSTALLERS, format_plan
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Plan, add_accel_packages, let_uv_choose_index
from accel_tools.setup.planning import hardware_names, make_plan, toolkit_names
from accel_tools.setup.recipes import parse_version

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
#: A limit between the major versions of NVIDIA drivers, which are higher, and of toolkits, which are lower.
_MIN_DRIVER = 300
#: The usage error for options and arguments that do not fit --into.
_INTO_USAGE = (
    "--into needs names, such as: accel setup --into FOLDER cuda=12.6 rocm=7.2 cpu. It cannot be used "
    "with --run, --python, --toolkit or --json."
)
#: A valid version for each option, for messages.
_EXAMPLES = {"driver": "570.86", "toolkit": "12.8", "python": "3.12", "torch": "2.9.1"}


def _require_version(
    _ctx: click.Context, param: click.Parameter, value: str | None
) -> str:
    """Return the version that was given for an option, or an empty string.

    Raises `click.BadParameter` if the version is malformed.
    """
    pattern = r"\d+\.\d+(\.\d+)*"  # Two or more numbers, as in 2.9.1.
    if param.name == "toolkit":
        pattern = r"\d+(\.\w+)*"  # Vendors also use words, as in 8.1.RC1.
    if value and not re.fullmatch(pattern, value):
        example = _EXAMPLES[param.name or ""]
        raise click.BadParameter(
            f"{value!r} is not a version; expected a version such as {example}."
        )
    return value or ""


def _require_known_name(value: str) -> str:
    """Return the name of a backend in lower case, or an empty string for an empty `value`.

    Raises `click.UsageError` with a suggestion if the name is unknown.
    """
    name = value.lower()
    if not name or name in hardware_names():
        return name
    suggestion = _ALIASES.get(name, "")
    if not suggestion:
        known = [*hardware_names(), *_ALIASES]
        for similar_name in difflib.get_close_matches(name, known, n=1):
            suggestion = _ALIASES.get(similar_name, similar_name)
    message = f"unknown NAME {value!r}; expected one of {', '.join(hardware_names())}."
    if suggestion:
        message += f" Did you mean {suggestion!r}?"
    raise click.UsageError(message)


@click.command("setup", cls=into_folder.SetupCommand)
@click.argument("requested", nargs=-1, metavar="[NAME]... [-- PACKAGES]")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Create one environment for each NAME. All environments are in FOLDER.",
)
@click.option(
    "--requirements",
    "-r",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --into: packages to install in every environment, like those after --.",
)
@click.option(
    "--torch-index",
    metavar="URL",
    default="",
    help="With --into: the URL of a mirror of https://download.pytorch.org/whl.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    help="The format of the output. [default: uv if installed, else pip]",
)
@click.option(
    "--python",
    callback=_require_version,
    metavar="X.Y",
    help="Python version, if different from the running one.",
)
@click.option(
    "--torch",
    callback=_require_version,
    metavar="X.Y.Z",
    help="Version of torch to install.",
)
@click.option(
    "--driver",
    callback=_require_version,
    metavar="VERSION",
    help="Version of NVIDIA's driver to plan for, instead of the installed version.",
)
@click.option(
    "--toolkit",
    callback=_require_version,
    metavar="VERSION",
    help="Version of CUDA, ROCm or CANN to plan for, instead of the installed version.",
)
@click.option("--run", is_flag=True, help="Run the command after confirmation.")
@click.option(
    "--yes", is_flag=True, help="With --run or --into: install without asking."
)
@options.as_json
@click.pass_context
def command(
    ctx: click.Context,
    requested: tuple[str, ...],
    *,
    into: Path | None,
    requirements: Path | None,
    torch_index: str,
    format_name: str | None,
    python: str,
    torch: str,
    driver: str,
    toolkit: str,
    run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Print the command that installs torch for this machine.

    The printed command is for the best accelerator of this machine, or for NAME, a backend or `rocm`. For
    hardware on a different machine, pass --driver or --toolkit; these versions are not checked. accel setup
    reads /sys, /dev and the files of drivers and toolkits, and runs nvidia-smi on Windows and in WSL2. accel
    setup does not import torch, and installs nothing without --run or --into. The printed command goes to
    stdout, and the reasons go to stderr. Exit status: 0 = success, 1 = no command is known or the command
    failed, 2 = usage error.

    With --into FOLDER, accel setup creates one environment in FOLDER for each NAME. `cuda=12.6` requests a
    toolkit version. All environments get the same PACKAGES. `FOLDER/bin/python` starts the environment that
    fits the machine.
    """
    packages: tuple[str, ...] = ctx.obj  # the arguments after `--`
    if into is not None:
        if not requested or any((run, python, toolkit, as_json)):
            raise click.UsageError(_INTO_USAGE)
        request = into_folder.Request(
            into, requested, packages, requirements, torch_index
        )
        _set_up_folder(request, format_name, torch, driver, yes=yes)
        return
    if len(requested) > 1 or packages or requirements or torch_index:
        raise click.UsageError(
            "Several names, packages, --requirements and --torch-index need --into FOLDER."
        )
    _check_options(
        run=run, yes=yes, format_name=format_name, python=python, as_json=as_json
    )
    name = _require_known_name(requested[0] if requested else "")
    _check_versions(name, driver, toolkit)
    status = _print_and_run_plan(
        name,
        format_name,
        python,
        torch,
        driver,
        toolkit,
        run=run,
        yes=yes,
        as_json=as_json,
    )
    ctx.exit(status)


def _set_up_folder(
    request: into_folder.Request,
    format_name: str | None,
    torch: str,
    driver: str,
    *,
    yes: bool,
) -> None:
    """Check the request's names, and make the environments of the folder."""
    _check_names(request.names)
    with answering(as_json=False):
        installer = into_folder.choose_installer(format_name)
        into_folder.set_up(request, installer, torch, driver, yes=yes)


def _print_and_run_plan(
    name: str,
    format_name: str | None,
    python: str,
    torch: str,
    driver: str,
    toolkit: str,
    *,
    run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Print the command that installs torch, and return the exit status.

    If `run` is true, the command is also run. The exit status is 1 if no command is known.
    """
    with answering(as_json=as_json) as output:
        machine = machines.here(python)
        format_name = format_name or environment.default_installer()
        is_installer = format_name in INSTALLERS
        plan = make_plan(machine, name, torch, driver=driver, toolkit=toolkit)
        # An installer changes the running environment; the other formats create a new one.
        plan = add_accel_packages(plan, is_new_environment=not is_installer)
        if format_name == "uv":
            plan = let_uv_choose_index(plan)
        command_line = format_plan(plan, format_name)
        mismatches = installed.find_mismatches(plan, machine)
        obstacles: tuple[str, ...] = ()
        if is_installer and command_line:
            obstacles = tuple(environment.find_installer_problems(format_name))
        if as_json:
            document = _document(
                plan, machine, format_name, command_line, mismatches, obstacles
            )
            output.write_json(document)
        else:
            # Only the command goes to stdout, so that `accel setup --format dockerfile > Dockerfile`
            # works.
            parts = _page(plan, machine, mismatches, obstacles)
            click.echo(page.to_text(parts, output.width, in_colour=False), err=True)
            if command_line:
                output.write(command_line)
    if run and command_line:
        _run_commands(plan, command_line, obstacles, yes=yes)
    return 0 if command_line else 1


# --- Options -------------------------------------------------------------------------


def _check_options(
    *,
    run: bool,
    yes: bool,
    format_name: str | None,
    python: str,
    as_json: bool,
) -> None:
    """Raise `click.UsageError` for options that contradict each other."""
    if yes and not run:
        raise click.UsageError("--yes needs --run.")
    if run and as_json:
        raise click.UsageError(
            "--run prints the installer's output. Next step: leave out --json."
        )
    if run and python:
        raise click.UsageError(
            "--run installs for this Python. Next step: leave out --python."
        )
    if run and format_name not in (None, *INSTALLERS):
        raise click.UsageError(
            f"--run needs --format pip or uv. The format {format_name} cannot be run."
        )


def _check_names(names: Sequence[str]) -> None:
    """Raise `click.UsageError` for an invalid name of `--into`; a valid name is `cuda=12.6`."""
    for requested in names:
        name, _, toolkit = requested.partition("=")
        _check_versions(_require_known_name(name), driver="", toolkit=toolkit)


def _check_versions(name: str, driver: str, toolkit: str) -> None:
    """Raise `click.UsageError` if the version of the driver or toolkit does not fit the backend `name`."""
    if driver:
        _check_driver(name, driver)
    if toolkit:
        _check_toolkit(name, toolkit)


def _check_driver(name: str, driver: str) -> None:
    """Raise `click.UsageError` unless `driver` is an NVIDIA driver version and `name` is cuda."""
    if not name:
        raise _missing_name_error(f"--driver {driver}", "cuda")
    if name != "cuda":
        raise click.UsageError(
            f"--driver is the version of NVIDIA's driver, so it has no effect on {name}."
        )
    major_version, _, _ = driver.partition(".")
    if int(major_version) < _MIN_DRIVER:
        raise click.UsageError(
            f"--driver: {driver!r} is not a version of NVIDIA's driver; expected a version "
            f"such as {_EXAMPLES['driver']}. Did you mean --toolkit {driver}?"
        )


def _check_toolkit(name: str, toolkit: str) -> None:
    """Raise `click.UsageError` unless the backend has a toolkit that can have the version `toolkit`."""
    if not name:
        raise _missing_name_error(f"--toolkit {toolkit}", "NAME")
    toolkit_by_backend = toolkit_names()
    if name not in toolkit_by_backend:
        pairs = toolkit_by_backend.items()
        listed = ", ".join(f"{label} ({backend})" for backend, label in pairs)
        raise click.UsageError(
            f"--toolkit has no effect on {name}. The option applies to these toolkits: {listed}."
        )
    version = parse_version(toolkit)
    if name == "cuda" and version is not None and version.major >= _MIN_DRIVER:
        raise click.UsageError(
            f"--toolkit: {toolkit!r} is not a version of CUDA; expected a version such as "
            f"12.8. Did you mean --driver {toolkit}?"
        )
    # CUDA and ROCm versions consist of two or more numbers.
    if name in ("cuda", "rocm") and not re.fullmatch(r"\d+\.\d+(\.\d+)*", toolkit):
        example = "12.8" if name == "cuda" else "6.4"
        raise click.UsageError(
            f"--toolkit: {toolkit!r} is not a version of {toolkit_by_backend[name]}; expected a version "
            f"such as {example}."
        )


def _missing_name_error(option: str, name: str) -> click.UsageError:
    """Return the error for an option that needs a backend; `name` is the backend to suggest."""
    return click.UsageError(
        f"{option} needs the name of a backend. Next step: accel setup {name} {option}"
    )


# --- Running -------------------------------------------------------------------------


def _run_commands(
    plan: Plan, command_line: str, obstacles: tuple[str, ...], *, yes: bool
) -> None:
    """Run the commands of `command_line` one after the other, after asking unless `yes`.

    Raises `click.ClickException` if a command fails. Also raises it before the first command if there
    are `obstacles`, or if the index with torch cannot be reached.
    """
    if obstacles:
        raise click.ClickException(obstacles[0])
    reason = environment.why_index_is_unreachable(plan)
    if reason:
        raise click.ClickException(f"the command was not run: {reason}")
    commands = environment.commands_for_this_python(command_line)
    for command in commands:
        click.echo(f"$ {shlex.join(command)}", err=True)
    if not yes:
        click.confirm("Run it?", abort=True, err=True)
    for command in commands:
        status = subprocess.run(command, check=False).returncode
        if status:
            raise click.ClickException(
                f"{shlex.join(command)} exited with status {status}"
            )
    click.echo("Done. Next step: accel list", err=True)


# --- The page ------------------------------------------------------------------------


def _page(
    plan: Plan,
    machine: Machine,
    mismatches: Sequence[str],
    obstacles: Sequence[str],
) -> list[page.Part]:
    """Return the page with the detected hardware, the parts of the plan with reasons, and problems."""
    parts = [_labelled("Detected", one_line(_describe_machine(plan, machine)))]
    if plan.assumed:
        parts.append(_labelled("Assumed (not detected)", ", ".join(plan.assumed)))
    for mismatch in mismatches:
        parts.append(_labelled("Problem", mismatch, "bold yellow"))
    parts.append(page.paragraph())
    if plan.why_no_command:
        parts.append(_labelled("Unknown", f"{plan.why_no_command}. See {plan.url}"))
    else:
        rows: list[list[page.Cell]] = []
        for part in plan.parts:
            rows.append([(part.what, "bold"), (part.why, ""), (part.source, "dim")])
        parts.append(page.table(("PART", "WHY", "SOURCE"), rows))
    parts += [page.paragraph((f"Note: {note}", "dim")) for note in plan.notes]
    for obstacle in obstacles:
        parts.append(_labelled("First", obstacle, "bold yellow"))
    return [*parts, page.paragraph()]


def _labelled(label: str, text: str, style: str = "bold") -> page.Part:
    """Return a paragraph that begins with a label in the given style."""
    return page.paragraph((f"{label}: ", style), (text, ""))


def _describe_machine(plan: Plan, machine: Machine) -> str:
    """Return the detected hardware, drivers and platform, separated by semicolons."""
    hardware = plan.hardware
    facts = [f"{device.label} ({device.evidence})" for device in hardware.devices]
    if not facts:
        facts.append("no accelerator")
    if hardware.nvidia_driver:
        facts.append(f"NVIDIA driver {hardware.nvidia_driver}")
    if hardware.amd_architectures:
        facts.append(f"GPU architecture {', '.join(hardware.amd_architectures)}")
    if hardware.machine_kind:
        facts.append(hardware.machine_kind)
    facts.append(f"{machine.system} on {machine.architecture}, Python {machine.python}")
    return "; ".join(facts)


# --- The document --------------------------------------------------------------------


def _document(
    plan: Plan,
    machine: Machine,
    format_name: str,
    command_line: str,
    mismatches: Sequence[str],
    obstacles: Sequence[str],
) -> dict[str, object]:
    """Return the plan and the problems as JSON-serializable values."""
    return {
        "machine": {
            "system": machine.system,
            "architecture": machine.architecture,
            "python": machine.python,
            "kind": plan.hardware.machine_kind,
            "nvidia_driver": plan.hardware.nvidia_driver,
            "gfx": list(plan.hardware.amd_architectures),
            "hardware": [device._asdict() for device in plan.hardware.devices],
        },
        "given": list(plan.assumed),
        "target": plan.target,
        "backend": plan.backend,
        "torch": plan.torch,
        "torch_backend": plan.torch_backend,
        "torch_index": plan.torch_index,
        "packages": list(plan.packages),
        "package_index": plan.package_index,
        "parts": [part._asdict() for part in plan.parts],
        "unknown": plan.why_no_command,
        "url": plan.url,
        "notes": list(plan.notes),
        "wrong": list(mismatches),
        "blocked": list(obstacles),
        "format": format_name,
        "command": command_line,
    }
