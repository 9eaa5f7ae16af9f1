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
    "parse_recipe",
    "parse_version",
    "read_recipes",
]

#: The entry-point group of the tables. An entry point is, for example, `npu = "accel_npu.recipes:RECIPE"`.
GROUP = "accel.recipes"
_FIRST_PARTY = "first_party.json"


class Toolkit(NamedTuple):
    """Vendor software that pip does not install, and the files that contain its version."""

    name: str
    url: str
    #: For each glob pattern of files, a regular expression whose first group matches the version.
    files: Mapping[str, str] = {}


class Row(NamedTuple):
    """One combination of torch, packages, Python and toolkit that a vendor supports."""

    #: The release of torch, such as `"2.9.0"`.
    torch: str
    #: The requirements in addition to torch, such as `("torch-npu==2.9.0",)`.
    packages: tuple[str, ...]
    #: The range of Python versions in the format of PEP 440, such as `">=3.10,<3.14"`, or an empty string
    #: for all.
    python: str = ""
    #: The range of toolkit versions in the format of PEP 440, or an empty string for all versions.
    toolkit: str = ""
    #: The CPU architectures, such as `("x86_64",)`, or an empty tuple for all.
    architectures: tuple[str, ...] = ()
    #: The URL of the vendor's page that lists the combination.
    source: str = ""
    #: The date on which the page was read, in ISO 8601 format.
    date: str = ""


class Recipe(NamedTuple):
    """A table of the package combinations that a backend's vendor supports."""

    backend: str
    #: The vendor's instructions for the installation.
    url: str
    rows: tuple[Row, ...] = ()
    toolkit: Toolkit | None = None
    #: The URL of the index with torch by CPU architecture. Architectures that are not listed use PyPI.
    torch_index: Mapping[str, str] = {}
    #: The URL of the index with the vendor's package, or an empty string if PyPI has the package.
    package_index: str = ""
    #: A remark for users.
    note: str = ""

    def is_old(self, today: dt.date) -> bool:
        """Return whether the newest row of the vendor's table is more than a year old."""
        if not self.rows:
            return False
        # Dates in ISO 8601 format sort like their text.
        newest = dt.date.fromisoformat(max(row.date for row in self.rows))
        return today - newest > dt.timedelta(days=365)


def read_recipes() -> tuple[dict[str, Recipe], tuple[str, ...]]:
    """Read the vendors' package tables, and return them as recipes, by backend.

    Also returns a sentence for each table that cannot be read. A table of an installed plugin takes
    precedence over the copy in `first_party.json`.
    """
    recipes = {}
    for name, table in _first_party_tables().items():
        recipes[name] = parse_recipe(name, table)
    problems = []
    # The order is reversed, because the first of two entry points with the same name takes precedence.
    for entry_point in reversed(permitted_entry_points(GROUP)):
        try:
            table = entry_point.load()
            recipes[entry_point.name] = parse_recipe(entry_point.name, table)
        except PLUGIN_ERRORS as error:
            problems.append(
                f"the package table of {entry_point.name} ({entry_point.value}) cannot be read: "
                f"{root_cause(error)}"
            )
    return recipes, tuple(problems)


@lru_cache(maxsize=1)
def _first_party_tables() -> dict[str, Any]:
    """Return the tables in `first_party.json` by backend."""
    text = (
        resources.files("accel_tools.setup").joinpath(_FIRST_PARTY).read_text("utf-8")
    )
    tables: dict[str, Any] = json.loads(text)
    return tables


def parse_recipe(backend: str, table: Any) -> Recipe:
    """Convert a plugin's package table to a `Recipe`.

    Raises `ValueError` if the table is malformed. The message states the row and the problem.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"expected a dict, got {type(table).__name__}")
    known_keys = {"url", "rows", "toolkit", "torch_index", "package_index", "note"}
    unknown_keys = sorted(set(table) - known_keys)
    if unknown_keys:
        raise ValueError(
            f"unknown key {unknown_keys[0]!r}, expected one of {', '.join(sorted(known_keys))}"
        )
    if not str(table.get("url", "")).startswith(("https://", "http://")):
        raise ValueError("url: expected the URL of the vendor's instructions")
    rows = []
    for number, row in enumerate(table.get("rows", ())):
        rows.append(_parse_row(number, row))
    return Recipe(
        backend,
        url=str(table["url"]),
        rows=tuple(rows),
        toolkit=Toolkit(**table["toolkit"]) if table.get("toolkit") else None,
        torch_index=dict(table.get("torch_index", {})),
        package_index=str(table.get("package_index", "")),
        note=str(table.get("note", "")),
    )


def _parse_row(number: int, row: Any) -> Row:
    """Convert a row of a table to a `Row`.

    Raises `ValueError` with the row's number if the row is malformed.
    """
    try:
        fields: dict[str, Any] = dict(row)
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(value)
        result = Row(**fields)
        # These calls raise an error if a field is malformed.
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
    """Return the newest version of the vendor's toolkit that is installed on the machine.

    Returns `None` if the toolkit is not installed.
    """
    return max(_installed_versions(recipe, machine), default=None)


def _installed_versions(recipe: Recipe, machine: Machine) -> Iterator[Version]:
    """Yield the version in each of the toolkit's files on the machine."""
    if recipe.toolkit is None:
        return
    for pattern, version_expression in recipe.toolkit.files.items():
        # This function finds any files that match a glob pattern, not only device nodes.
        for path in bus.device_nodes((pattern,), machine.root):
            text = machine.text(str(Path(path).as_posix()))
            match = re.search(version_expression, text)
            version = parse_version(match[1]) if match else None
            if version is not None:
                yield version


def parse_version(text: str) -> Version | None:
    """Parse a toolkit version, or return `None` if `text` does not begin with a version.

    A version that PEP 440 does not allow, such as `8.1.RC1.alpha001`, counts as older than 8.1.
    """
    try:
        return Version(text)
    except InvalidVersion:
        return _parse_nonstandard_version(text)


def _parse_nonstandard_version(text: str) -> Version | None:
    """Parse a version that PEP 440 does not allow, as a development version that is older than the release.

    For example, `8.3.RC1.alpha001` becomes `8.3.dev0+rc1.alpha001`. Returns `None` if `text` does not begin
    with a number.
    """
    match = re.match(r"[0-9]+(\.[0-9]+)*", text)  # This matches numbers such as "8.3".
    if match is None:
        return None
    numbers = match[0]
    suffix = text.removeprefix(numbers)
    words = re.findall(r"[a-zA-Z0-9]+", suffix)
    local_version = ".".join(words) or "unknown"
    return Version(f"{numbers}.dev0+{local_version}")
