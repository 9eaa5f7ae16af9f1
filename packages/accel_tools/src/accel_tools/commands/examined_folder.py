"""`accel doctor FOLDER`: show the environments of a folder, and the environment for this machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.hardware import vendors
from accel_core.plugins import installed_names
from accel_tools.setup import choice, folder

__all__ = ["FolderOrNames", "write_report"]


class FolderOrNames(click.Command):
    """A click command whose first argument may be a folder instead of a name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the first argument from `args` to `ctx.obj` if the argument is a folder.

        A folder that has the name of a backend, such as `cuda`, must be written as `./cuda`.
        """
        for argument in args:
            if argument.startswith("-"):  # The argument is an option.
                continue
            if _is_folder_argument(argument):
                ctx.obj = Path(argument)
                args.remove(argument)
            break
        return super().parse_args(ctx, args)


def _is_folder_argument(word: str) -> bool:
    """Return whether the word is a path, or the name of a folder that is not a backend's name."""
    if os.sep in word:
        return True
    return Path(word).is_dir() and word not in installed_names()


class Environment(NamedTuple):
    """An environment that `accel setup --into` created, and why this machine does or does not use it."""

    name: str
    #: The installed version of torch, such as `"2.13.0+cu130"`, or an empty string if the installation of
    #: the environment is not complete.
    torch: str
    #: The hardware that the environment targets, such as `"NVIDIA GPU"`, or an empty string if unknown.
    serves: str
    #: Whether the environment was installed completely.
    is_complete: bool
    #: Whether this machine takes the environment.
    is_chosen: bool
    #: The reason why the environment is or is not chosen.
    reason: str


class _FolderReport(NamedTuple):
    """The environments in a folder, and whether one of them fits this machine."""

    folder: Path
    #: The reason why no environment can be chosen, and the next step. Otherwise, an empty string.
    error: str
    #: The reason why the hardware is not used, and the next step. Otherwise, an empty string.
    warning: str
    environments: list[Environment]

    @property
    def is_healthy(self) -> bool:
        """Return whether all environments are complete, and one of them uses this machine's device.

        On a machine without a device, an environment for the CPU is enough.
        """
        if self.error or self.warning or not self.environments:
            return False
        return all(environment.is_complete for environment in self.environments)

    def to_dict(self) -> dict[str, object]:
        """Return the record as JSON-serializable values."""
        rows = [environment._asdict() for environment in self.environments]
        return {**self._asdict(), "folder": str(self.folder), "environments": rows}


def write_report(folder_path: Path, *, as_json: bool) -> int:
    """Print the environments in the folder `folder_path`, and return the exit status.

    The exit status is 0 if all environments are complete and one of them fits this machine, and 1
    otherwise. Raises `UsageError` if the folder does not exist.
    """
    if not folder_path.is_dir():
        raise click.UsageError(
            f"{folder_path} does not exist, or is not a folder. Next step: pass a folder that "
            "accel setup --into has created, or the name of a backend."
        )
    with answering(as_json=as_json) as output:
        folder_report = _examine(folder_path.absolute())
        if as_json:
            output.write_json(folder_report.to_dict())
        else:
            output.write_page(_page(folder_report))
    return 0 if folder_report.is_healthy else 1


def _examine(folder_path: Path) -> _FolderReport:
    """Return the environments of a folder, and which of them is chosen on this machine."""
    names = _environment_names(folder_path)
    if not names:
        return _FolderReport(folder_path, _no_environment_error(folder_path), "", [])
    try:
        chosen = choice.choose(str(folder_path), os.environ)
    except LookupError as error:
        environments = _describe_environments(folder_path, names, chosen=None)
        return _FolderReport(folder_path, str(error.args[0]), "", environments)
    environments = _describe_environments(folder_path, names, chosen)
    return _FolderReport(folder_path, "", chosen.warning, environments)


def _environment_names(folder_path: Path) -> list[str]:
    """Return the names of the folder's environments, including incomplete environments."""
    folders = {
        path.name for path in folder_path.glob("environments/*") if path.is_dir()
    }
    lock_files = {path.stem for path in folder_path.glob("environments/*.lock")}
    return sorted(folders | lock_files)


def _no_environment_error(folder_path: Path) -> str:
    """Return the error for a folder without environments, and the command that creates some.

    The command creates an environment for the CPU, and one for each accelerator of this machine that is not
    part of the CPU, and for which `accel setup` has a name.
    """
    names: list[str] = []
    for vendor in vendors.known_hardware():
        name = folder.name_for_setup(vendor)
        has_name = name != ""  # Hardware whose vendor builds torch itself has no name.
        if has_name and name not in names and not vendor.is_integrated:
            names.append(name)
    command = shlex.join(
        ["accel", "setup", "--into", str(folder_path), *names, choice.CPU]
    )
    return f"{folder_path} has no environment yet. Next step: {command}"


def _page(folder_report: _FolderReport) -> list[page.Part]:
    """Return a table of the environments, and the error or warning."""
    parts: list[page.Part] = []
    if folder_report.environments:
        titles = ("  ENVIRONMENT", "TORCH", "SERVES", "HERE")
        rows = [
            _environment_row(environment) for environment in folder_report.environments
        ]
        parts.append(page.table(titles, rows))
    for text in (folder_report.error, folder_report.warning):
        if text:
            parts.append(page.paragraph((text, "yellow")))
    return parts


def _environment_row(environment: Environment) -> list[page.Cell]:
    """Return the row of the table on an environment; a star marks the chosen environment."""
    star = "*" if environment.is_chosen else " "
    style = "" if environment.is_complete else "yellow"
    return [
        (f"{star} {environment.name}", "bold"),
        (environment.torch or "-", ""),
        (environment.serves or "-", ""),
        (environment.reason, style),
    ]


def _describe_environments(
    folder_path: Path, names: Sequence[str], chosen: choice.Choice | None
) -> list[Environment]:
    """Return the environments called `names`, and why each is or is not chosen on this machine.

    `chosen` is `None` if no environment can be chosen.
    """
    devices = choice.detect_devices(str(folder_path))
    record_by_name = {}
    for complete_environment in choice.complete_environments(str(folder_path)):
        record_by_name[complete_environment["name"]] = complete_environment
    environments = []
    for name in names:
        record = record_by_name.get(name)
        if record is None:
            environments.append(_incomplete_environment(folder_path, name))
            continue
        reason = _why_not_chosen(record, devices)
        is_chosen = False
        if chosen is not None and chosen.environment["name"] == name:
            reason = f"chosen: {chosen.reason}"
            is_chosen = True
        environments.append(
            Environment(
                name=name,
                torch=record["torch"],
                serves=record["serves"] or "CPU",
                is_complete=True,
                is_chosen=is_chosen,
                reason=reason,
            )
        )
    return environments


def _incomplete_environment(folder_path: Path, name: str) -> Environment:
    """Return an environment whose installation is not complete, with the next step."""
    folder_argument = shlex.quote(str(folder_path))
    return Environment(
        name=name,
        torch="",
        serves="",
        is_complete=False,
        is_chosen=False,
        reason="incomplete. Next step: repeat accel setup --into "
        f"{folder_argument} with the same names",
    )


def _why_not_chosen(record: choice.Record, devices: Sequence[choice.Device]) -> str:
    """Return why an environment is not chosen on a machine with the given devices.

    `record` is the record of the environment.
    """
    if not record["serves"]:  # The environment is for the CPU.
        return "not needed"
    for device in devices:
        if device.row["label"] in record["serves"].split(", "):
            unmet_need = choice.describe_unmet_need(record, device)
            return (
                unmet_need or "fits this machine, but a different environment is better"
            )
    return f"this machine has no {record['serves'].replace(', ', ' or ')}"
