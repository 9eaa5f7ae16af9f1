"""Find installed packages that do not fit the machine, for `accel setup` and `accel doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_core import TorchBuild, packages, torch_build
from accel_core.hardware import bus
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Plan
from accel_tools.setup.recipes import Recipe, Row, installed_toolkit, recipes

__all__ = ["BUILDS", "OLDEST_DRIVER", "OWN_BUILDS", "faults", "too_old", "unfit"]

#: For a vendor's hardware, by `Vendor.label`, the field of `TorchBuild` that the right build of torch sets,
#: and the name of this build. Hardware of other vendors needs torch's CPU build and the vendor's package.
BUILDS = {
    "NVIDIA GPU": ("cuda", "CUDA"),
    "AMD GPU": ("hip", "ROCm"),
    "Intel discrete GPU": ("xpu", "XPU"),
}
#: Vendors whose builds of torch for their GPUs appear as CUDA or ROCm builds. Each entry has the mark in the
#: build's version and the URL of the build. accel-cuda declares the same values.
OWN_BUILDS = {
    "MetaX GPU": ("metax", "https://developer.metax-tech.com/softnova"),
    "Iluvatar GPU": ("corex", "https://support.iluvatar.com/"),
    "Hygon DCU": ("dtk", "https://developer.sourcefind.cn/"),
}
#: The oldest major version of NVIDIA's driver for programs built with a major version of CUDA:
#: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1.
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
_IPEX = "intel-extension-for-pytorch"


def faults(plan: Plan, machine: Machine) -> tuple[str, ...]:
    """Return one sentence per installed package that does not fit the machine; torch comes first."""
    build = torch_build()
    sentences = []
    if build is not None:
        for device in plan.hardware.present:
            driver = plan.hardware.nvidia if device.label == "NVIDIA GPU" else ""
            sentences.append(unfit(build, device.label, device.evidence, driver))
            if driver:
                sentences.append(too_old(build, driver))
    ipex = packages.version(_IPEX)
    if plan.backend == "xpu" and ipex:
        sentences.append(
            f"{_IPEX} {ipex} is installed, but torch 2.8 and later do not need it: "
            f"pip uninstall {_IPEX}"
        )
    tables, _ = recipes()
    for recipe in tables.values():
        sentences += _row_faults(recipe, build, machine)
    return tuple(dict.fromkeys(filter(None, sentences)))


def unfit(build: TorchBuild, label: str, evidence: str, driver: str = "") -> str:
    """Return a sentence if the build of torch cannot use the hardware, otherwise an empty string.

    Args:
        build: The installed build of torch.
        label: The hardware, a `Vendor.label`.
        evidence: How the hardware was detected.
        driver: The version of the hardware's driver, or an empty string.
    """
    if label in OWN_BUILDS:
        mark, _ = OWN_BUILDS[label]
        # The version in Iluvatar's build may lack the mark that the distribution's version has.
        if mark in build.version or mark in str(packages.version("torch")):
            return ""
        vendor = label.partition(" ")[0]
        here = f"this machine has {bus.with_article(label)} ({evidence})"
        return f"torch {build.version} is not {vendor}'s build, but {here}"
    if label not in BUILDS or getattr(build, BUILDS[label][0]):
        return ""
    with_driver = f", with driver {driver}" if driver else ""
    here = f"this machine has {bus.with_article(label)} ({evidence}{with_driver})"
    return f"torch {build.version} is {build.kind}, but {here}"


def too_old(build: TorchBuild, driver: str) -> str:
    """Return a sentence if NVIDIA's driver is too old for torch's CUDA, otherwise an empty string."""
    major = (build.cuda or "").partition(".")[0]
    oldest = OLDEST_DRIVER.get(int(major), 0) if major.isdigit() else 0
    if int(driver.partition(".")[0]) >= oldest:
        return ""
    return (
        f"NVIDIA's driver {driver} is too old for torch's CUDA {build.cuda}, "
        f"which needs driver {oldest} or newer"
    )


def _row_faults(
    recipe: Recipe, build: TorchBuild | None, machine: Machine
) -> Iterator[str]:
    """Yield a sentence for each installed vendor package that needs a different torch or toolkit."""
    toolkit = installed_toolkit(recipe, machine)
    toolkit_name = recipe.toolkit.name if recipe.toolkit else "the toolkit"
    for row, package in _installed_rows(recipe):
        if build is not None and build.version.partition("+")[0] != row.torch:
            yield (
                f"{package} requires torch {row.torch}, but torch {build.version} is installed"
            )
        if toolkit is not None and not _is_in_range(toolkit, row.toolkit):
            required = f"{toolkit_name} {row.toolkit.removeprefix('==')}"
            yield f"{package} requires {required}, but version {toolkit} is installed"


def _installed_rows(recipe: Recipe) -> Iterator[tuple[Row, str]]:
    """Yield each row that has an installed package, with the package's name and version."""
    for row in recipe.rows:
        for requirement in row.packages:
            name, _, version = requirement.partition("==")
            if version and packages.version(name) == version:
                yield row, f"{name} {version}"


def _is_in_range(version: Version, text: str) -> bool:
    """Return whether a version is in a range such as `">=8.1,<9"`; an empty range has all versions."""
    return not text or version in SpecifierSet(text, prereleases=True)
