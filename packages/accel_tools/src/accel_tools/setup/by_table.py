"""Plan with a vendor's table: torch, the vendor's package and its toolkit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_tools.setup import builds
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Part, Plan, with_plugin
from accel_tools.setup.recipes import Recipe, Row, installed_toolkit, parsed_version

__all__ = ["by_table"]


def by_table(plan: Plan, recipe: Recipe, machine: Machine, torch: str) -> Plan:
    """Complete the plan by the newest row that fits; `torch`: the required version, or empty."""
    notes: tuple[str, ...] = (recipe.note,) if recipe.note else ()
    if not recipe.rows:
        what = f"no public table says which packages the {plan.target} needs"
        return plan._replace(unknown=what, url=recipe.url, notes=notes)
    toolkit = parsed_version(plan.toolkit) or installed_toolkit(recipe, machine)
    rows = [row for row in recipe.rows if _fits(row, machine, torch)]
    if not rows:
        wanted = f"torch {torch}, " if torch else ""
        what = f"no row of the vendor's table has {wanted}Python {machine.python} on {machine.architecture}"
        return plan._replace(unknown=what, url=recipe.url, notes=notes)
    able = [
        row
        for row in rows
        if toolkit is None or not row.toolkit or toolkit in _range(row.toolkit)
    ]
    if not able:
        name = recipe.toolkit.name if recipe.toolkit else "the toolkit"
        what = (
            f"{name} {toolkit} is {'given' if plan.toolkit else 'here'}, and for torch 2.6 and newer the "
            f"vendor's table has "
            f"{_enumerated(rows)} for Python {machine.python}"
        )
        return plan._replace(unknown=what, url=recipe.url, notes=notes)
    best = max(able, key=_newness)
    if recipe.toolkit and best.toolkit and toolkit is None:
        name = recipe.toolkit.name
        notes += (
            f"If {name} is elsewhere, give its version: accel setup {recipe.backend} --toolkit VERSION",
        )
    if recipe.is_old(dt.datetime.now(tz=dt.timezone.utc).date()):
        notes += (
            f"This table is from {best.date}, more than a year ago: compare it with {recipe.url}",
        )
    return with_plugin(_of_row(plan, recipe, best, machine, toolkit))._replace(
        notes=notes
    )


def _fits(row: Row, machine: Machine, torch: str) -> bool:
    return (
        (not torch or Version(row.torch) == Version(torch))
        and (not row.python or machine.python in SpecifierSet(row.python))
        and (not row.architectures or machine.architecture in row.architectures)
        and machine.system == "linux"
    )


def _newness(row: Row) -> tuple[Version, Version]:
    release = row.packages[0].partition("==")[2].removesuffix(".*")
    return Version(row.torch), Version(release or "0")


def _range(text: str) -> SpecifierSet:
    return SpecifierSet(text, prereleases=True)


def _enumerated(rows: Sequence[Row]) -> str:
    wanted = list(
        dict.fromkeys(row.toolkit.removeprefix("==") for row in rows if row.toolkit)
    )
    return ", ".join(wanted) or "none"


def _of_row(
    plan: Plan, recipe: Recipe, row: Row, machine: Machine, toolkit: Version | None
) -> Plan:
    source = f"{row.source} ({row.date})"
    index = recipe.torch_index.get(machine.architecture, "").removeprefix(
        f"{builds.INDEX}/"
    )
    kind = "PyTorch's CPU build" if index == builds.CPU else "PyPI's build"
    driver, *needed = row.packages
    parts = [
        Part(
            f"torch=={row.torch}",
            f"{kind}, the release that {driver} is made for",
            source,
        ),
        Part(driver, f"drives the {plan.target}", source),
        *(
            Part(package, f"the vendor's instructions install it with {driver}", source)
            for package in needed
        ),
    ]
    needs = ""
    if recipe.toolkit and row.toolkit:
        needs = f"{recipe.toolkit.name} {row.toolkit.removeprefix('==')}"
        why = f"missing here: install it first, {recipe.toolkit.url}"
        if toolkit:
            why = f"{toolkit} is {'given' if plan.toolkit else 'installed'}"
        parts.insert(0, Part(needs, why, source))
        needs += f": {recipe.toolkit.url}"
    return plan._replace(
        torch=f"torch=={row.torch}",
        torch_backend=index,
        packages=row.packages,
        package_index=recipe.package_index,
        parts=tuple(parts),
        url=recipe.url,
        needs=needs,
    )
