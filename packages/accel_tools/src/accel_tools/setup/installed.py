"""Find installed packages that do not fit the machine, for `accel setup` and `accel doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_core import TorchBuild, packages, torch_build
from accel_core.hardware import bus
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Plan
from accel_tools.setup.recipes import Recipe, Row, installed_toolkit, read_recipes

__all__ = [
    "OLDEST_DRIVER",
    "VENDOR_BUILDS",
    "VendorBuild",
    "describe_build_mismatch",
    "describe_driver_mismatch",
    "find_mismatches",
]

#: The field of `TorchBuild` that is set in the build of torch that a vendor's hardware needs, by
#: `Vendor.label`. Hardware of other vendors needs torch's CPU build and the vendor's package.
_FIELD_OF_NEEDED_BUILD = {
    "NVIDIA GPU": "cuda",
    "AMD GPU": "hip",
    "Intel discrete GPU": "xpu",
}


class VendorBuild(NamedTuple):
    """A vendor's own build of torch for its GPUs, which looks like a CUDA or ROCm build."""

    #: The vendor, such as `"MetaX"`.
    vendor: str
    #: The vendor's word for its device, such as `"GPU"`.
    device: str
    #: The text in the version of the build, such as `"metax"`.
    mark: str
    #: The page with the build.
    url: str


#: The vendors' own builds, by `Vendor.label`. accel-cuda declares the same values.
VENDOR_BUILDS = {
    "MetaX GPU": VendorBuild(
        "MetaX", "GPU", "metax", "https://developer.metax-tech.com/softnova"
    ),
    "Iluvatar GPU": VendorBuild(
        "Iluvatar", "GPU", "corex", "https://support.iluvatar.com/"
    ),
    "Hygon DCU": VendorBuild("Hygon", "DCU", "dtk", "https://developer.sourcefind.cn/"),
}
#: The oldest major version of NVIDIA's driver for programs built with a major version of CUDA:
#: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1.
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
_IPEX = "intel-extension-for-pytorch"


def find_mismatches(plan: Plan, machine: Machine) -> tuple[str, ...]:
    """Return a sentence for each installed package that does not fit the machine, torch first."""
    build = torch_build()
    sentences = []
    if build is not None:
        for device in plan.hardware.devices:
            driver = plan.hardware.nvidia_driver if device.label == "NVIDIA GPU" else ""
            sentences.append(
                describe_build_mismatch(build, device.label, device.evidence, driver)
            )
            if driver:
                sentences.append(describe_driver_mismatch(build, driver))
    ipex = packages.version(_IPEX)
    if plan.backend == "xpu" and ipex:
        sentences.append(
            f"{_IPEX} {ipex} is installed, but torch 2.8 and later do not need it. "
            f"Next step: pip uninstall {_IPEX}"
        )
    recipes, _ = read_recipes()
    for recipe in recipes.values():
        sentences += _find_vendor_package_mismatches(recipe, build, machine)
    without_duplicates = dict.fromkeys(sentences)
    # A check that finds no mismatch adds an empty string.
    return tuple(sentence for sentence in without_duplicates if sentence)


def describe_build_mismatch(
    build: TorchBuild, label: str, evidence: str, driver: str = ""
) -> str:
    """Describe why the installed torch cannot use the hardware, in one sentence.

    Returns an empty string if torch can use the hardware.

    Args:
        build: The installed build of torch.
        label: The hardware, such as `"NVIDIA GPU"`, as in `Vendor.label`.
        evidence: How the hardware was detected.
        driver: The version of the hardware's driver, or an empty string.
    """
    vendor_build = VENDOR_BUILDS.get(label)
    if vendor_build is not None:
        mark = vendor_build.mark
        # The version in Iluvatar's build may lack the mark that the distribution's version has.
        if mark in build.version or mark in str(packages.version("torch")):
            return ""
        return (
            f"torch {build.version} is not {vendor_build.vendor}'s build, but this machine has "
            f"{bus.with_article(label)} ({evidence})"
        )
    field = _FIELD_OF_NEEDED_BUILD.get(label)
    if field is None:
        # The hardware works with torch's CPU build and the vendor's package.
        return ""
    supports_hardware = bool(getattr(build, field))
    if supports_hardware:
        return ""
    with_driver = f", with driver {driver}" if driver else ""
    return (
        f"torch {build.version} is {build.kind}, but this machine has "
        f"{bus.with_article(label)} ({evidence}{with_driver})"
    )


def describe_driver_mismatch(build: TorchBuild, driver: str) -> str:
    """Describe in one sentence that the NVIDIA driver is too old for torch's CUDA version.

    Returns an empty string if the driver is new enough, or if the build has no CUDA version.
    """
    cuda_major = (build.cuda or "").partition(".")[0]
    if not cuda_major.isdigit():
        return ""
    oldest = OLDEST_DRIVER.get(int(cuda_major), 0)
    driver_major = int(driver.partition(".")[0])
    if driver_major >= oldest:
        return ""
    return (
        f"NVIDIA driver {driver} is too old for torch's CUDA {build.cuda}, "
        f"which needs driver {oldest} or newer"
    )


def _find_vendor_package_mismatches(
    recipe: Recipe, build: TorchBuild | None, machine: Machine
) -> Iterator[str]:
    """Yield a sentence for each installed vendor package that needs a different torch or toolkit.

    `recipe` is the vendor's table. `build` is the installed torch, or `None` if torch is not installed.
    """
    toolkit = installed_toolkit(recipe, machine)
    toolkit_name = recipe.toolkit.name if recipe.toolkit else "the toolkit"
    for row, package in _rows_of_installed_packages(recipe):
        if build is not None:
            release, _, _ = build.version.partition("+")
            if release != row.torch:
                yield (
                    f"{package} requires torch {row.torch}, but torch {build.version} is installed"
                )
        if toolkit is not None and not _is_in_range(toolkit, row.toolkit):
            required = f"{toolkit_name} {row.toolkit.removeprefix('==')}"
            yield f"{package} requires {required}, but version {toolkit} is installed"


def _rows_of_installed_packages(recipe: Recipe) -> Iterator[tuple[Row, str]]:
    """Yield each row that has an installed package, with the package's name and version."""
    for row in recipe.rows:
        for requirement in row.packages:
            name, _, version = requirement.partition("==")
            if version and packages.version(name) == version:
                yield row, f"{name} {version}"


def _is_in_range(version: Version, version_range: str) -> bool:
    """Return whether a version is in a range such as `">=8.1,<9"`.

    An empty range contains all versions.
    """
    if not version_range:
        return True
    return version in SpecifierSet(version_range, prereleases=True)
