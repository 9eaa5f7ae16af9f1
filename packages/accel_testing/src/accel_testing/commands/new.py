"""`accel new`: create a plugin distribution for a device from a template."""

from __future__ import annotations

import contextlib
import datetime as dt
import keyword
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from accel_core import __version__, package_folders
from accel_core.hardware import vendors
from accel_core.plugins import declaring_distributions, installed_names
from accel_core.text import one_line

__all__ = ["SERVED_BY_TORCH", "TORCH_TYPES", "command"]

_TEMPLATE = Path(__file__).parents[1] / "template"
#: The device types of torch 2.13 (c10/core/DeviceType.cpp), except PrivateUse1, which can be renamed.
TORCH_TYPES = (
    "cpu", "cuda", "ipu", "xpu", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "maia", "xla",
    "lazy", "vulkan", "mps", "meta", "hpu", "mtia",
)  # fmt: skip
#: Device types that PrivateUse1 cannot be renamed to (torch/csrc/Module.cpp, "in-tree device name").
SERVED_BY_TORCH = ("cpu", "cuda", "hip", "mps", "xpu", "mtia")
#: The names of this project's `accel_NAME` modules that are not plugins.
_PROJECT_MODULES = ("core", "simulated", "testing", "tools", "train")
_MAX_NAME_LENGTH = 40
_ALLOWED = (
    "lower-case letters, digits and single underscores, beginning with a letter, with at most "
    f"{_MAX_NAME_LENGTH} characters, such as my_npu"
)
_NAME_PATTERN = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
#: The extras that the tests of the new distribution need.
_EXTRAS = "test,lint"
_LICENSES = ("Apache-2.0", "BSD-3-Clause", "MIT")
#: The questions in copier.yml, in the same order, with the help texts of their options.
_QUESTIONS = {
    "private_use1": "Whether the device uses torch's PrivateUse1 [yes], or a device type built into torch.",
    "torch_module": "The name of the device's module in torch, and of its torch device type [NAME].",
    "vendor_import": "The module that registers the device with torch [torch_NAME].",
    "install_hint": "The command that installs the vendor's package [pip install torch-NAME].",
    "description": "A description of the plugin in one line [NAME devices for accel-core].",
    "distribution": "The distribution's name [accel-NAME].",
    "author": "The copyright holder [The accel-NAME developers].",
    "url": "The address of the repository [none].",
    "license": "The distribution's licence [Apache-2.0].",
}


def _flag(question: str) -> str:
    """Return the command-line option for a question, such as `--torch-module`."""
    return f"--{question.replace('_', '-')}"


def _require_name(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Return the name of the new backend. Raises `click.UsageError` if it is invalid."""
    has_valid_form = _NAME_PATTERN.fullmatch(value) is not None
    is_too_long = len(value) > _MAX_NAME_LENGTH
    if not has_valid_form or is_too_long or keyword.iskeyword(value):
        raise click.BadParameter(
            f"{value!r} is not a valid backend name; expected {_ALLOWED}."
        )
    return value


def _require_one_line(
    _ctx: click.Context, param: click.Parameter, value: str | None
) -> str | None:
    """Return the value of an option. Raises `click.UsageError` if it contains control characters."""
    if value is not None and not value.isprintable():
        raise click.BadParameter(
            f"{value!r} contains a line break or control character; expected one line of plain text."
        )
    return value


def _add_question_options(function: Any) -> Any:
    """Add an option for each question of the template to the command."""
    # click lists the options in the reverse of the order in which they are added.
    for question, help_text in reversed(_QUESTIONS.items()):
        if question == "private_use1":
            option = click.option(
                "--private-use1/--no-private-use1", default=None, help=help_text
            )
        elif question == "license":
            option = click.option(
                _flag(question), type=click.Choice(_LICENSES), help=help_text
            )
        else:
            option = click.option(
                _flag(question),
                metavar="TEXT",
                callback=_require_one_line,
                help=help_text,
            )
        function = option(function)
    return function


@click.command("new")
@click.argument("name", callback=_require_name)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder to create, which must not exist [./accel-NAME].",
)
@click.option(
    "--defaults",
    is_flag=True,
    help="Do not ask for missing options, but use the values in brackets.",
)
@_add_question_options
def command(
    name: str, *, output: Path | None, defaults: bool, **options: str | bool | None
) -> None:
    """Write a plugin distribution for your device.

    The distribution contains the declaration, the accelerator class, tests with the checks of accel verify,
    CI, README, license and changelog. Without changes it builds, installs and passes its tests; if the
    vendor's package is not installed, the tests run on a simulated device. On a terminal, accel new asks for
    missing options. Requires accel-testing[new].
    """
    answers = {
        question: answer for question, answer in options.items() if answer is not None
    }
    _require_usable_names(name, answers)
    if output is None:
        output = Path(f"accel-{name.replace('_', '-')}")
    _require_writable(output)
    _require_copier()
    missing = [_flag(question) for question in _QUESTIONS if question not in answers]
    if missing and not defaults and not sys.stdin.isatty():
        raise click.UsageError(
            f"Without a terminal, accel new cannot ask for missing options: {', '.join(missing)}. Give these "
            "options, or pass --defaults to use the default values that accel new --help lists."
        )
    _write(name, output, answers, defaults=defaults or not missing)
    click.echo(f"Written: {output}")
    click.echo(f"Next: cd {output} && pip install -e '.[{_EXTRAS}]' && pytest")


def _require_copier() -> None:
    """Raise `click.ClickException` if copier is not installed."""
    if find_spec("copier") is None:
        install = vendors.install_command("accel-testing", extra="new")
        raise click.ClickException(
            f"accel new needs copier, which is not installed. Next step: {install}"
        )


#: The next step for a name that is one of torch's device types.
_BUILT_IN_HINT = (
    "to write a plugin for this device type of torch, add --no-private-use1"
)

# --- checks before any question is asked -----------------------------------------------------------


def _require_usable_names(name: str, answers: dict[str, str | bool]) -> None:
    """Raise `click.UsageError` if the name of the device or of its torch module is already in use."""
    private_use1 = answers.get("private_use1")
    _require_unused_name(name, private_use1)
    torch_module = str(answers.get("torch_module", name))
    # Without an answer, the template's default is that the device uses PrivateUse1.
    uses_private_use1 = private_use1 is None or private_use1
    if uses_private_use1 and torch_module not in TORCH_TYPES:
        _require_no_torch_module(torch_module)


def _require_unused_name(name: str, private_use1: object) -> None:
    """Raise `click.UsageError` if a plugin, a package of this project or torch already uses the name.

    `private_use1` is the answer to the template's question of the same name, or `None` if it is unanswered.
    """
    conflict = _describe_conflict_with_package(name)
    if not conflict:
        conflict = _describe_conflict_with_torch(name, private_use1)
    if conflict:
        raise click.UsageError(
            f"{name!r} is in use: {conflict}. Give another name, such as my_{name}."
        )


def _describe_conflict_with_package(name: str) -> str:
    """Return a clause that says which package or plugin uses the name, or an empty string if none does."""
    is_installed = name in installed_names()
    if name in vendors.FIRST_PARTY and not is_installed:
        plugin = vendors.FIRST_PARTY[name]
        return f"{plugin} provides this backend: {vendors.install_command(plugin)}"
    if name in _PROJECT_MODULES:
        return f"accel_{name} is one of accel's packages"
    if is_installed:
        owners = ", ".join(sorted(declaring_distributions(name))) or "accel-core"
        return f"{owners} is installed and provides this backend"
    return ""


def _describe_conflict_with_torch(name: str, private_use1: object) -> str:
    """Return why the name cannot be used for a device type, or an empty string if it can."""
    is_unanswered = private_use1 is None
    if name in SERVED_BY_TORCH and private_use1:
        return (
            "torch has a device type with this name, so PrivateUse1 cannot be renamed to it; "
            f"{_BUILT_IN_HINT}"
        )
    if name in TORCH_TYPES and is_unanswered:
        conflict = f"torch has a device type with this name; {_BUILT_IN_HINT}"
        if name not in SERVED_BY_TORCH:
            conflict += (
                ", or --private-use1 if a package renames PrivateUse1 to this name"
            )
        return conflict
    return ""


def _require_no_torch_module(name: str) -> None:
    """Raise `click.UsageError` if the installed torch already has a module of this name."""
    for torch_folder in package_folders("torch"):
        folder = Path(torch_folder)
        if (folder / name).is_dir() or (folder / f"{name}.py").is_file():
            raise click.UsageError(
                f"torch.{name} is a module of torch ({folder}), so a device cannot have this name. "
                "Give another name with --torch-module, or another NAME."
            )


def _require_writable(output: Path) -> None:
    """Raise `click.UsageError` if the output folder already exists or cannot be created."""
    if os.path.lexists(output):
        raise click.UsageError(
            f"{output} already exists, and was not changed. Give another folder with --output."
        )
    try:
        parent = output.absolute().parent
    except FileNotFoundError:
        raise click.UsageError(
            "The current folder was deleted. Change to another folder, or give --output an absolute path."
        ) from None
    if not parent.is_dir():
        raise click.UsageError(
            f"{output}: there is no folder {parent}. Create it first: mkdir -p {parent}"
        )
    if not os.access(parent, os.W_OK):
        raise click.UsageError(
            f"{output}: {parent} cannot be written. Give another folder with --output."
        )


# --- writing -------------------------------------------------------------------------------------------


def _write(name: str, output: Path, answers: dict[str, Any], *, defaults: bool) -> None:
    """Write the distribution into a temporary folder, and rename that folder to `output` when it is done."""
    import copier

    major, minor, *_ = __version__.split(".")
    next_major = int(major) + 1
    class_name = "".join(word.capitalize() for word in name.split("_"))
    data = {
        **answers,
        "install": vendors.install_command("accel-core", "accel-testing"),
        "name": name,
        "class": class_name,
        "core": f">={major}.{minor},<{next_major}",
        "torch_types": list(TORCH_TYPES),
        "served_by_torch": list(SERVED_BY_TORCH),
        "keywords": keyword.kwlist,
        "year": dt.datetime.now(dt.timezone.utc).year,
    }
    with _temporary_folder(output) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the template is not in a git repository
        try:
            copier.run_copy(str(_TEMPLATE), folder, data, defaults=defaults, quiet=True)
        except ValueError as error:
            raise click.UsageError(_answer_error(str(error), answers)) from None
        folder.rename(output)


@contextlib.contextmanager
def _temporary_folder(output: Path) -> Iterator[Path]:
    """Yield the path of a folder to create, inside a temporary folder next to `output`.

    The temporary folder is removed at the end. Raises `click.ClickException` if the folder cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{output.name}-", dir=output.absolute().parent
        ) as folder:
            yield Path(folder, "project")  # copier creates this folder
    except OSError as error:
        raise click.ClickException(
            f"{output} cannot be written: {error.strerror or error}. All temporary files were removed."
        ) from None


def _answer_error(message: str, answers: dict[str, Any]) -> str:
    """Return the template's message about an invalid answer, along with the option that sets the answer."""
    # copier's message has the form "... question 'license': PROBLEM".
    match = re.search(r"question '(\w+)': (.*)", message, re.DOTALL)
    if match is None:
        return one_line(message)
    question, problem = match.groups()
    if question in answers:
        answer = f" {answers[question]!r}"
    else:
        answer = ", which is not given"
    return one_line(f"{_flag(question)}{answer}: {problem}.")
