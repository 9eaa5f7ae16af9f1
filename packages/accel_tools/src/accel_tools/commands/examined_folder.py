"""`accel doctor FOLDER`: the environments of a folder, and the one that this machine takes."""

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
        """Keep the folder as `ctx.obj`; `./cuda` is the folder where `cuda` is a backend too."""
        words = [word for word in args if not word.startswith("-")]
        if words and _is_folder(words[0]):
            ctx.obj = Path(words[0])
            args.remove(words[0])
        return super().parse_args(ctx, args)


def _is_folder(word: str) -> bool:
    return Path(word).is_dir() and (os.sep in word or word not in installed_names())


class Environment(NamedTuple):
    """An environment of the folder, and why this machine takes it or not."""

    name: str
    #: The installed version, `"2.13.0+cu130"`; empty where it is not whole.
    torch: str
    serves: str
    is_whole: bool
    is_chosen: bool
    reason: str


class _Report(NamedTuple):
    """The environments of a folder, and whether one of them fits this machine."""

    folder: Path
    #: Why no environment can be taken, with the next step; else empty.
    error: str
    #: Why the hardware is not used, with the next step; else empty.
    warning: str
    environments: list[Environment]

    @property
    def is_healthy(self) -> bool:
        """Return whether each environment is whole and one fits this machine."""
        if self.error or self.warning or not self.environments:
            return False
        return all(each.is_whole for each in self.environments)

    def to_dict(self) -> dict[str, object]:
        """Return the record as plain values, for JSON."""
        rows = [each._asdict() for each in self.environments]
        return {**self._asdict(), "folder": str(self.folder), "environments": rows}


def report(into: Path, *, as_json: bool) -> int:
    """Print the environments of a folder; return 0 if each is whole and one fits this machine, else 1."""
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
                name, "", "", False, False, f"not whole. Next step: {step}"
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
    for device in present:
        if device.row["label"] in record["serves"].split(", "):
            return (
                choice.unmet(record, device) or "would fit, and another one is better"
            )
    return (
        f"no {record['serves'].replace(', ', ' or ')} is here"
        if record["serves"]
        else "not needed"
    )
