"""Tables of the combinations of torch, vendor package, toolkit and Python that vendors support.

A plugin declares its table as an entry point of the group `accel.recipes`, with the name of
its backend. The value is a `dict` of strings, lists and numbers (docs/howto/writing-a-plugin.md).
`first_party.json` has copies of the tables of accel's plugins, for environments without the
plugins. `./dev docs --write` updates the copies.
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

#: The group of entry points with tables, such as `npu = "accel_npu.recipes:RECIPE"`.
GROUP = "accel.recipes"
_FIRST_PARTY = "first_party.json"


class Toolkit(NamedTuple):
    """A vendor's software that pip does not install, and the files that contain its version."""

    name: str
    url: str
    #: For each glob pattern of files, a regular expression whose first group matches the version.
    files: Mapping[str, str] = {}


class Row(NamedTuple):
    """One combination that the vendor supports."""

    #: The release of torch, such as `"2.9.0"`.
    torch: str
    #: The requirements in addition to torch, such as `("torch-npu==2.9.0",)`.
    packages: tuple[str, ...]
    #: The range of Python versions in the format of PEP 440, such as `">=3.10,<3.14"`; empty for all.
    python: str = ""
    #: The range of toolkit versions in the format of PEP 440; empty for all versions.
    toolkit: str = ""
    #: The CPU architectures, such as `("x86_64",)`; empty for all.
    architectures: tuple[str, ...] = ()
    #: The URL of the vendor's page that lists the combination.
    source: str = ""
    #: The date on which the page was read, in ISO 8601 format.
    date: str = ""


class Recipe(NamedTuple):
    """A backend's table."""

    backend: str
    #: The vendor's instructions for the installation.
    url: str
    rows: tuple[Row, ...] = ()
    toolkit: Toolkit | None = None
    #: The URL of the index with torch by CPU architecture. Architectures that are not listed use PyPI.
    torch_index: Mapping[str, str] = {}
    #: The URL of the index with the vendor's package; empty if PyPI has the package.
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
    """Return the tables by backend, and one sentence per table that cannot be read.

    A table of an installed plugin takes precedence over the copy in `first_party.json`.
    """
    tables = {name: parsed(name, table) for name, table in _first_party().items()}
    problems = []
    # The order is reversed, because the first of two entry points with the same name takes precedence.
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
    """Convert a plugin's table to a `Recipe`.

    Raises `ValueError` if the table is malformed; the message gives the row and the problem.
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
        raise ValueError("url: expected the URL of the vendor's instructions")
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
    """Convert a row of a table to a `Row`; raise `ValueError` with the row's number if it is malformed."""
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
            f"row {number}: source: expected the https URL of the vendor's page"
        )
    return result


def installed_toolkit(recipe: Recipe, machine: Machine) -> Version | None:
    """Return the newest version of the vendor's toolkit on the machine; `None` if it is not installed."""
    return max(_versions(recipe, machine), default=None)


def _versions(recipe: Recipe, machine: Machine) -> Iterator[Version]:
    """Yield the versions that the toolkit's files contain."""
    if recipe.toolkit is None:
        return
    for pattern, expression in recipe.toolkit.files.items():
        for path in bus.device_nodes((pattern,), machine.root):
            match = re.search(expression, machine.text(str(Path(path).as_posix())))
            version = parsed_version(match[1]) if match else None
            if version is not None:
                yield version


def parsed_version(text: str) -> Version | None:
    """Parse the version of a toolkit; return `None` if `text` does not begin with a version.

    A version that PEP 440 does not allow, such as `8.1.RC1.alpha001`, counts as older than 8.1.
    """
    try:
        return Version(text)
    except InvalidVersion:
        release = re.match(r"[0-9]+(\.[0-9]+)*", text)
    if release is None:
        return None
    suffix = ".".join(re.findall(r"[a-zA-Z0-9]+", text[release.end() :]))
    return Version(f"{release[0]}.dev0+{suffix or 'unknown'}")
