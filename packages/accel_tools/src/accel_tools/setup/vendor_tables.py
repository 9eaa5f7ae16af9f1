"""Complete a plan with a vendor's table of torch, vendor packages and toolkits."""

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
    """Return the plan with the packages of the newest row that fits.

    `torch` is the required release, or an empty string for the newest that fits. If no row fits, the
    plan has the reason in `unknown`.
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
    """Yield a note if the toolkit was not detected, and a note if the table is old."""
    if recipe.toolkit and row.toolkit and toolkit is None:
        yield (
            f"If {recipe.toolkit.name} is on a different machine, give its version: "
            f"accel setup {recipe.backend} --toolkit VERSION"
        )
    if recipe.is_old(dt.datetime.now(tz=dt.timezone.utc).date()):
        yield (
            f"This table is from {row.date}, more than a year ago: "
            f"compare it with {recipe.url}"
        )


def _fits(row: Row, machine: Machine, torch: str) -> bool:
    """Return whether the row fits the machine and the required torch; the toolkit is not checked."""
    if machine.system != "linux":
        return False
    if torch and Version(row.torch) != Version(torch):
        return False
    if row.python and machine.python not in SpecifierSet(row.python):
        return False
    return not row.architectures or machine.architecture in row.architectures


def _has_toolkit(row: Row, toolkit: Version | None) -> bool:
    """Return whether the row fits the version of the toolkit; every row fits an unknown version."""
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
    """Return why no row fits; `rows` are the rows that do not fit only because of the toolkit."""
    if not recipe.rows:
        return f"no public table lists the packages for the {plan.target}"
    if not rows:
        release = f"torch {torch}, " if torch else ""
        return (
            f"no row of the vendor's table has {release}Python {machine.python} "
            f"on {machine.architecture}"
        )
    name = recipe.toolkit.name if recipe.toolkit else "the toolkit"
    state = "requested" if plan.toolkit else "installed"
    ranges = [row.toolkit.removeprefix("==") for row in rows if row.toolkit]
    known = ", ".join(dict.fromkeys(ranges)) or "none"
    return (
        f"{name} {toolkit} is {state}, but for torch 2.6 and newer the vendor's table "
        f"has {known} for Python {machine.python}"
    )


def _newness(row: Row) -> tuple[Version, Version]:
    """Return the versions of torch and of the vendor's package, by which rows are sorted."""
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
    """Return the parts of the plan with reasons, and the required toolkit with its URL."""
    source = f"{row.source} ({row.date})"
    build = "PyTorch's CPU build" if index == builds.CPU else "PyPI's build"
    driver, *others = row.packages
    why = f"{build} of the release for which {driver} was made"
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
    why = f"not installed: install it first, {recipe.toolkit.url}"
    if toolkit:
        why = f"{toolkit} is {'requested' if plan.toolkit else 'installed'}"
    parts.insert(0, Part(needs, why, source))
    return parts, f"{needs}: {recipe.toolkit.url}"
