"""`accel doctor FOLDER`: show the environments of a folder, and the environment for this machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.plugins import installed_names
from accel_tools.setup import choice

__all__ = ["FolderOrNames", "report"]


class FolderOrNames(click.Command):
    """A command whose first argument may be a folder."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remove a folder from `args` and store its path as `ctx.obj`.

        If a folder has the name of a backend, such as `cuda`, it must be given as `./cuda`.
        """
        words = [word for word in args if not word.startswith("-")]
        if words and _is_folder(words[0]):
            ctx.obj = Path(words[0])
            args.remove(words[0])
        return super().parse_args(ctx, args)


def _is_folder(word: str) -> bool:
    """Return whether the word means a folder: a path, or a folder without a backend's name."""
    if os.sep in word:
        return True
    return Path(word).is_dir() and word not in installed_names()


class Environment(NamedTuple):
    """An environment of the folder, and why it is or is not chosen on this machine."""

    name: str
    #: The installed version of torch, such as `"2.13.0+cu130"`; empty if the installation of
    #: the environment is not complete.
    torch: str
    #: The hardware for which the environment is, such as `"NVIDIA GPU"`; empty if unknown.
    serves: str
    #: Whether the environment was installed completely.
    is_whole: bool
    #: Whether this machine takes the environment.
    is_chosen: bool
    #: The reason why the environment is or is not chosen.
    reason: str


class _Report(NamedTuple):
    """The environments of a folder, and whether one of them fits this machine."""

    folder: Path
    #: The reason why no environment can be chosen, and the next step; otherwise empty.
    error: str
    #: The reason why the hardware is not used, and the next step; otherwise empty.
    warning: str
    environments: list[Environment]

    @property
    def is_healthy(self) -> bool:
        """Return whether all environments are complete, and one of them fits this machine."""
        if self.error or self.warning or not self.environments:
            return False
        return all(each.is_whole for each in self.environments)

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        rows = [each._asdict() for each in self.environments]
        return {**self._asdict(), "folder": str(self.folder), "environments": rows}


def report(into: Path, *, as_json: bool) -> int:
    """Print the environments of the folder `into`, and return the exit status.

    The exit status is 0 if all environments are complete and one of them fits this machine,
    and 1 otherwise. Raises `UsageError` if there is no such folder.
    """
    if not into.is_dir():
        raise click.UsageError(
            f"{into} does not exist, or is not a folder. Give a folder that "
            "accel setup --into has made, or the name of a backend."
        )
    with answering(as_json=as_json) as output:
        result = _examine(into.absolute())
        if as_json:
            output.write_json(result.to_dict())
        else:
            output.write_page(_page(result))
    return 0 if result.is_healthy else 1


def _examine(into: Path) -> _Report:
    try:
        chosen = choice.choose(str(into), os.environ)
    except LookupError as error:
        return _Report(into, str(error.args[0]), "", list(_environments(into, None)))
    environments = list(_environments(into, chosen))
    return _Report(into, "", chosen.warning, environments)


def _page(result: _Report) -> list[page.Part]:
    titles = ("  ENVIRONMENT", "TORCH", "SERVES", "HERE")
    parts = [page.table(titles, [_cells(each) for each in result.environments])]
    for text in (result.error, result.warning):
        if text:
            parts.append(page.paragraph((text, "yellow")))
    return parts


def _cells(each: Environment) -> list[page.Cell]:
    star = "*" if each.is_chosen else " "
    style = "" if each.is_whole else "yellow"
    return [
        (f"{star} {each.name}", "bold"),
        (each.torch or "-", ""),
        (each.serves or "-", ""),
        (each.reason, style),
    ]


def _environments(into: Path, chosen: choice.Choice | None) -> Iterator[Environment]:
    present = choice.devices(str(into))
    whole = {record["name"]: record for record in choice.environments(str(into))}
    made = {path.name for path in into.glob("environments/*") if path.is_dir()}
    locked = {path.stem for path in into.glob("environments/*.lock")}
    for name in sorted(made | locked):
        if name not in whole:
            step = f"accel setup --into {shlex.quote(str(into))} with the same names"
            yield Environment(
                name, "", "", False, False, f"incomplete. Next step: {step}"
            )
            continue
        record = whole[name]
        serves = record["serves"] or "CPU"
        if chosen is not None and chosen.environment["name"] == name:
            yield Environment(
                name, record["torch"], serves, True, True, f"chosen: {chosen.reason}"
            )
        else:
            reason = _why_not(record, present)
            yield Environment(name, record["torch"], serves, True, False, reason)


def _why_not(record: choice.Record, present: list[choice.Device]) -> str:
    """Return why the environment is not chosen on a machine with the devices `present`."""
    for device in present:
        if device.row["label"] in record["serves"].split(", "):
            return (
                choice.unmet(record, device)
                or "fits, but a different environment is better"
            )
    if not record["serves"]:
        return "not needed"
    return f"this machine has no {record['serves'].replace(', ', ' or ')}"
