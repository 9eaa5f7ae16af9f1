"""Vendors' tables: the supported combinations of torch, vendor package, toolkit and Python.

A plugin declares its table as an entry point of the group `accel.recipes`, with the name of
its backend; the value is a `dict` of strings, lists and numbers (docs/howto/writing-a-plugin.md). The
tables of accel's plugins are in `first_party.json` too, for machines without any plugin;
`./dev docs --write` copies them.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.hardware import bus
from accel_core.settings import permitted_entry_points
from accel_tools.setup.machines import Machine

__all__ = [
    "GROUP",
    "Recipe",
    "Row",
    "Toolkit",
    "installed_toolkit",
    "parsed",
    "parsed_version",
    "recipes",
]

#: Entry points named as the backend: `npu = "accel_npu.recipes:RECIPE"`.
GROUP = "accel.recipes"
_FIRST_PARTY = "first_party.json"


class Toolkit(NamedTuple):
    """A vendor's software that pip does not install, and the files that have its version."""

    name: str
    url: str
    #: A glob pattern to a regular expression whose first group is the version.
    files: Mapping[str, str] = {}


class Row(NamedTuple):
    """One combination that the vendor supports."""

    #: `"2.9.0"`.
    torch: str
    #: Requirements in addition to torch: `("torch-npu==2.9.0",)`.
    packages: tuple[str, ...]
    #: Version ranges as in PEP 440: `">=3.10,<3.14"`; empty for any.
    python: str = ""
    toolkit: str = ""
    #: Empty for any.
    architectures: tuple[str, ...] = ()
    source: str = ""
    date: str = ""


class Recipe(NamedTuple):
    """A backend's table."""

    backend: str
    #: The vendor's instructions for the installation.
    url: str
    rows: tuple[Row, ...] = ()
    toolkit: Toolkit | None = None
    #: Index of torch by architecture; others take torch from PyPI.
    torch_index: Mapping[str, str] = {}
    #: Index of the vendor's package if PyPI lacks it; empty for PyPI.
    package_index: str = ""
    #: A remark for users.
    note: str = ""

    def is_old(self, today: dt.date) -> bool:
        """Return whether the newest row is more than a year old."""
        newest = max((row.date for row in self.rows), default="")
        return bool(newest) and today - dt.date.fromisoformat(newest) > dt.timedelta(
            days=365
        )


def recipes() -> tuple[dict[str, Recipe], tuple[str, ...]]:
    """Return the tables by backend, and a sentence on each malformed one.

    A table of an installed plugin takes precedence over the copy in `first_party.json`.
    """
    tables = {name: parsed(name, table) for name, table in _first_party().items()}
    problems = []
    # Reversed, because of two with one name the first one counts.
    for entry_point in reversed(permitted_entry_points(GROUP)):
        try:
            tables[entry_point.name] = parsed(entry_point.name, entry_point.load())
        except PLUGIN_ERRORS as error:
            what = (
                f"the recipe of {entry_point.name} ({entry_point.value}) cannot be read"
            )
            problems.append(f"{what}: {root_cause(error)}")
    return tables, tuple(problems)


@lru_cache(maxsize=1)
def _first_party() -> dict[str, Any]:
    text = (
        resources.files("accel_tools.setup").joinpath(_FIRST_PARTY).read_text("utf-8")
    )
    tables: dict[str, Any] = json.loads(text)
    return tables


def parsed(backend: str, table: Any) -> Recipe:
    """Return a plugin's table as a `Recipe`.

    Raises `ValueError`, which names the row and its fault, for a malformed table.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"expected a dict, got {type(table).__name__}")
    known = {"url", "rows", "toolkit", "torch_index", "package_index", "note"}
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(
            f"unknown key {unknown[0]!r}, expected {', '.join(sorted(known))}"
        )
    if not str(table.get("url", "")).startswith(("https://", "http://")):
        raise ValueError("url: expected the address of the vendor's instructions")
    rows = tuple(_row(number, row) for number, row in enumerate(table.get("rows", ())))
    toolkit = Toolkit(**table["toolkit"]) if table.get("toolkit") else None
    texts = {key: str(table.get(key, "")) for key in ("url", "package_index", "note")}
    return Recipe(
        backend,
        rows=rows,
        toolkit=toolkit,
        torch_index=dict(table.get("torch_index", {})),
        **texts,
    )


def _row(number: int, row: Any) -> Row:
    """Return a row of a table; raises `ValueError` with the row's number."""
    try:
        fields: dict[str, Any] = dict(row)
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(value)
        result = Row(**fields)
        Version(result.torch)
        SpecifierSet(result.python)
        SpecifierSet(result.toolkit)
        dt.date.fromisoformat(result.date)
    except (TypeError, ValueError, InvalidVersion, InvalidSpecifier) as error:
        raise ValueError(f"row {number}: {error}") from None
    if not result.source.startswith("https://"):
        raise ValueError(
            f"row {number}: source: expected the https address of the vendor's page"
        )
    return result


def installed_toolkit(recipe: Recipe, machine: Machine) -> Version | None:
    """Return the newest version of the vendor's toolkit on the machine; `None` if there is none."""
    return max(_versions(recipe, machine), default=None)


def _versions(recipe: Recipe, machine: Machine) -> Iterator[Version]:
    """Yield the versions in the toolkit's files."""
    if recipe.toolkit is None:
        return
    for pattern, expression in recipe.toolkit.files.items():
        for path in bus.device_nodes((pattern,), machine.root):
            match = re.search(expression, machine.text(str(Path(path).as_posix())))
            version = parsed_version(match[1]) if match else None
            if version is not None:
                yield version


def parsed_version(text: str) -> Version | None:
    """Return the version of a toolkit that `text` contains; `None` if it contains none.

    A version that PEP 440 rejects, such as `8.1.RC1.alpha001`, counts as older than the release 8.1.
    """
    try:
        return Version(text)
    except InvalidVersion:
        release = re.match(r"[0-9]+(\.[0-9]+)*", text)
    if release is None:
        return None
    suffix = ".".join(re.findall(r"[a-zA-Z0-9]+", text[release.end() :]))
    return Version(f"{release[0]}.dev0+{suffix or 'unknown'}")
