"""Complete a plan with a vendor's table of torch, vendor packages and toolkits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_tools.setup import builds
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Part, Plan, add_plugin
from accel_tools.setup.recipes import (
    Recipe,
    Row,
    Toolkit,
    installed_toolkit,
    parse_version,
)

__all__ = ["add_vendor_packages"]


def add_vendor_packages(
    plan: Plan, recipe: Recipe, machine: Machine, torch: str
) -> Plan:
    """Return the plan with the newest packages in the vendor's table that fit the machine.

    The packages are those of one row of the table. `torch` is the required release, or an empty string for
    the newest that fits. If no row fits, the plan contains the reason in `why_no_command`.
    """
    toolkit = parse_version(plan.toolkit) or installed_toolkit(recipe, machine)
    rows = [row for row in recipe.rows if _fits_machine(row, machine, torch)]
    fitting_rows = [row for row in rows if _fits_toolkit(row, toolkit)]
    notes = [recipe.note] if recipe.note else []
    if not fitting_rows:
        reason = _why_no_row(plan, recipe, rows, machine, torch, toolkit)
        return plan._replace(why_no_command=reason, url=recipe.url, notes=tuple(notes))
    newest_row = max(fitting_rows, key=_torch_and_package_version)
    notes += _notes_on_table(recipe, newest_row, toolkit)
    plan = add_plugin(_add_row(plan, recipe, newest_row, machine, toolkit))
    return plan._replace(notes=tuple(notes))


def _notes_on_table(recipe: Recipe, row: Row, toolkit: Version | None) -> Iterator[str]:
    """Yield a note if the toolkit was not detected, and a note if the table is old."""
    if recipe.toolkit and row.toolkit and toolkit is None:
        yield (
            f"If {recipe.toolkit.name} is on a different machine, pass the version there: "
            f"accel setup {recipe.backend} --toolkit VERSION"
        )
    if recipe.is_old(dt.datetime.now(tz=dt.timezone.utc).date()):
        yield (
            f"This table is from {row.date}, more than a year ago. "
            f"Next step: compare it with {recipe.url}"
        )


def _fits_machine(row: Row, machine: Machine, torch: str) -> bool:
    """Return whether the row fits the machine and the required release of torch.

    The toolkit version is not checked.
    """
    if machine.system != "linux":
        return False
    if torch and Version(row.torch) != Version(torch):
        return False
    if row.python and machine.python not in SpecifierSet(row.python):
        return False
    return not row.architectures or machine.architecture in row.architectures


def _fits_toolkit(row: Row, toolkit: Version | None) -> bool:
    """Return whether the row fits the toolkit version.

    Returns True if the version is `None`, which means that it is unknown.
    """
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
    """Return why no row of the vendor's table fits the machine.

    `rows` are the rows that would fit with a different version of the toolkit. `torch` is the required
    release, or an empty string.
    """
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
    listed_versions = ", ".join(dict.fromkeys(ranges)) or "none"
    return (
        f"{name} {toolkit} is {state}, but the vendor's table lists only these versions for "
        f"Python {machine.python} and torch 2.6 or newer: {listed_versions}"
    )


def _torch_and_package_version(row: Row) -> tuple[Version, Version]:
    """Return the versions of torch and of the vendor's package, by which rows are sorted."""
    # The first package of a row is the vendor's package for torch.
    vendor_package = row.packages[0]
    _, _, version = vendor_package.partition("==")
    if not version:
        version = "0"  # A package without a version is sorted before all versions.
    return Version(row.torch), Version(version.removesuffix(".*"))


def _add_row(
    plan: Plan, recipe: Recipe, row: Row, machine: Machine, toolkit: Version | None
) -> Plan:
    """Return the plan with the packages of a row of the vendor's table.

    `toolkit` is the version that is requested or installed, or `None`.
    """
    index_url = recipe.torch_index.get(machine.architecture, "")
    # The rest of the URL is the name of PyTorch's index, such as "cpu".
    torch_backend = index_url.removeprefix(f"{builds.INDEX}/")
    parts = _package_parts(plan.target, row, torch_backend)
    needs = ""
    if recipe.toolkit is not None and row.toolkit:
        part = _toolkit_part(plan, recipe.toolkit, row, toolkit)
        parts.insert(0, part)
        needs = f"{part.what}: {recipe.toolkit.url}"
    return plan._replace(
        torch=f"torch=={row.torch}",
        torch_backend=torch_backend,
        packages=row.packages,
        package_index=recipe.package_index,
        parts=tuple(parts),
        url=recipe.url,
        needs=needs,
    )


def _package_parts(target: str, row: Row, torch_backend: str) -> list[Part]:
    """Return a part with a reason for torch and for each package of a row.

    `target` is the hardware, such as `"Ascend NPU"`. `torch_backend` is the name of PyTorch's index with
    torch, or an empty string for PyPI.
    """
    source = f"{row.source} ({row.date})"
    build = "PyTorch's CPU build" if torch_backend == builds.CPU else "PyPI's build"
    # The first package of a row is the vendor's package for torch.
    vendor_package, *other_packages = row.packages
    why = f"{build} of the release that {vendor_package} requires"
    parts = [
        Part(f"torch=={row.torch}", why, source),
        Part(vendor_package, f"drives the {target}", source),
    ]
    for package in other_packages:
        why = f"the vendor's instructions install this package together with {vendor_package}"
        parts.append(Part(package, why, source))
    return parts


def _toolkit_part(
    plan: Plan, toolkit: Toolkit, row: Row, version: Version | None
) -> Part:
    """Return the plan's part for the toolkit that a row needs.

    It states whether `version` is requested or installed.
    """
    if version is None:
        why = f"not installed. Next step: install {toolkit.name} first: {toolkit.url}"
    elif plan.toolkit:
        why = f"{version} is requested"
    else:
        why = f"{version} is installed"
    source = f"{row.source} ({row.date})"
    return Part(f"{toolkit.name} {row.toolkit.removeprefix('==')}", why, source)
