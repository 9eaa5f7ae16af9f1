"""Plan with a vendor's table: torch, the vendor's package and its toolkit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_tools.setup import builds
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Part, Plan, with_plugin
from accel_tools.setup.recipes import Recipe, Row, installed_toolkit, parsed_version

__all__ = ["plan_with_table"]


def plan_with_table(plan: Plan, recipe: Recipe, machine: Machine, torch: str) -> Plan:
    """Complete the plan with the newest row that fits; `torch`: the required version, or empty.

    If no row fits, the plan has the reason in `unknown`.
    """
    toolkit = parsed_version(plan.toolkit) or installed_toolkit(recipe, machine)
    rows = [row for row in recipe.rows if _fits(row, machine, torch)]
    with_toolkit = [row for row in rows if _has_toolkit(row, toolkit)]
    notes = [recipe.note] if recipe.note else []
    if not with_toolkit:
        reason = _why_no_row(plan, recipe, rows, machine, torch, toolkit)
        return plan._replace(unknown=reason, url=recipe.url, notes=tuple(notes))
    row = max(with_toolkit, key=_newness)
    notes += _notes(recipe, row, toolkit)
    plan = with_plugin(_with_row(plan, recipe, row, machine, toolkit))
    return plan._replace(notes=tuple(notes))


def _notes(recipe: Recipe, row: Row, toolkit: Version | None) -> Iterator[str]:
    """Yield notes on a toolkit that is not detected, and on an old table."""
    if recipe.toolkit and row.toolkit and toolkit is None:
        yield (
            f"If {recipe.toolkit.name} is elsewhere, give its version: "
            f"accel setup {recipe.backend} --toolkit VERSION"
        )
    if recipe.is_old(dt.datetime.now(tz=dt.timezone.utc).date()):
        yield (
            f"This table is from {row.date}, more than a year ago: "
            f"compare it with {recipe.url}"
        )


def _fits(row: Row, machine: Machine, torch: str) -> bool:
    """Return whether the row is for this machine and for the required torch, whatever the toolkit."""
    if machine.system != "linux":
        return False
    if torch and Version(row.torch) != Version(torch):
        return False
    if row.python and machine.python not in SpecifierSet(row.python):
        return False
    return not row.architectures or machine.architecture in row.architectures


def _has_toolkit(row: Row, toolkit: Version | None) -> bool:
    """Return whether the row is for that version of the toolkit; an unknown one is not excluded."""
    if toolkit is None or not row.toolkit:
        return True
    return toolkit in SpecifierSet(row.toolkit, prereleases=True)


def _why_no_row(
    plan: Plan,
    recipe: Recipe,
    rows: Sequence[Row],
    machine: Machine,
    torch: str,
    toolkit: Version | None,
) -> str:
    """Return why no row fits; `rows` are those that fit but for the toolkit."""
    if not recipe.rows:
        return f"no public table has the packages for the {plan.target}"
    if not rows:
        release = f"torch {torch}, " if torch else ""
        return (
            f"no row of the vendor's table has {release}Python {machine.python} "
            f"on {machine.architecture}"
        )
    name = recipe.toolkit.name if recipe.toolkit else "the toolkit"
    is_here = "requested" if plan.toolkit else "here"
    ranges = [row.toolkit.removeprefix("==") for row in rows if row.toolkit]
    known = ", ".join(dict.fromkeys(ranges)) or "none"
    return (
        f"{name} {toolkit} is {is_here}, but for torch 2.6 and newer the vendor's table "
        f"has {known} for Python {machine.python}"
    )


def _newness(row: Row) -> tuple[Version, Version]:
    """Return the versions of torch and of the vendor's package, to sort by."""
    release = row.packages[0].partition("==")[2].removesuffix(".*")
    return Version(row.torch), Version(release or "0")


def _with_row(
    plan: Plan, recipe: Recipe, row: Row, machine: Machine, toolkit: Version | None
) -> Plan:
    """Return the plan with the packages of the row."""
    address = recipe.torch_index.get(machine.architecture, "")
    index = address.removeprefix(f"{builds.INDEX}/")
    requirement = f"torch=={row.torch}"
    parts, needs = _parts(plan, recipe, row, toolkit, index)
    return plan._replace(
        torch=requirement,
        torch_backend=index,
        packages=row.packages,
        package_index=recipe.package_index,
        parts=tuple(parts),
        url=recipe.url,
        needs=needs,
    )


def _parts(
    plan: Plan, recipe: Recipe, row: Row, toolkit: Version | None, index: str
) -> tuple[list[Part], str]:
    """Return the parts of the command with reasons, and the toolkit that pip does not install."""
    source = f"{row.source} ({row.date})"
    build = "PyTorch's CPU build" if index == builds.CPU else "PyPI's build"
    driver, *others = row.packages
    why = f"{build}, the release that {driver} is made for"
    parts = [
        Part(f"torch=={row.torch}", why, source),
        Part(driver, f"drives the {plan.target}", source),
    ]
    for package in others:
        why = f"the vendor's instructions install it with {driver}"
        parts.append(Part(package, why, source))
    if recipe.toolkit is None or not row.toolkit:
        return parts, ""
    needs = f"{recipe.toolkit.name} {row.toolkit.removeprefix('==')}"
    why = f"missing here: install it first, {recipe.toolkit.url}"
    if toolkit:
        why = f"{toolkit} is {'requested' if plan.toolkit else 'installed'}"
    parts.insert(0, Part(needs, why, source))
    return parts, f"{needs}: {recipe.toolkit.url}"
