"""Installed packages that do not fit the machine, as sentences for `accel setup` and `accel doctor`."""

from __future__ import annotations

from accel_core import TorchBuild, packages, torch_build
from accel_core.hardware import bus
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import Plan
from accel_tools.setup.recipes import Recipe, installed_toolkit, recipes

__all__ = ["BUILDS", "OLDEST_DRIVER", "OWN_BUILDS", "faults", "too_old", "unfit"]

#: Builds of torch that drive a maker's hardware, by `Vendor.label`, as `TorchBuild` names them. Other makers'
#: hardware is driven by torch's CPU build and a package of theirs.
BUILDS = {
    "NVIDIA GPU": ("cuda", "CUDA"),
    "AMD GPU": ("hip", "ROCm"),
    "Intel discrete GPU": ("xpu", "XPU"),
}
#: Makers who build torch for their own GPUs under CUDA's or ROCm's name: the mark in its version, and its
#: address. accel-cuda declares the same.
OWN_BUILDS = {
    "MetaX GPU": ("metax", "https://developer.metax-tech.com/softnova"),
    "Iluvatar GPU": ("corex", "https://support.iluvatar.com/"),
    "Hygon DCU": ("dtk", "https://developer.sourcefind.cn/"),
}
#: The oldest driver for programs built with a major release of CUDA:
#: https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, table 1.
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
_IPEX = "intel-extension-for-pytorch"


def faults(plan: Plan, machine: Machine) -> tuple[str, ...]:
    """Return a sentence for each installed package that does not fit, the most basic first."""
    build = torch_build()
    found = []
    if build is not None:
        for present in plan.hardware.present:
            with_driver = plan.hardware.nvidia if present.label == "NVIDIA GPU" else ""
            found.append(unfit(build, present.label, present.evidence, with_driver))
            found.append(too_old(build, with_driver) if with_driver else "")
    if plan.backend == "xpu" and (ipex := packages.version(_IPEX)):
        found.append(
            f"{_IPEX} {ipex} is installed, which torch 2.8 and later do not need: pip uninstall {_IPEX}"
        )
    tables, _ = recipes()
    for recipe in tables.values():
        found += _of_packages(recipe, build, machine)
    return tuple(dict.fromkeys(sentence for sentence in found if sentence))


def unfit(build: TorchBuild, label: str, evidence: str, driver: str = "") -> str:
    """Return that torch's build cannot use that hardware, as a sentence; empty if it can."""
    mark, _ = OWN_BUILDS.get(label, ("", ""))
    if mark:
        fits = (
            mark in f"{build.version} {packages.version('torch')}"
        )  # Iluvatar's torch.version may lack it
        maker = label.partition(" ")[0]
        here = f"{bus.with_article(label)} is here ({evidence})"
        return "" if fits else f"torch {build.version} is not {maker}'s build; {here}"
    field, _ = BUILDS.get(label, ("", ""))
    if not field or getattr(build, field):
        return ""
    with_driver = f", with driver {driver}" if driver else ""
    return f"torch {build.version} is {build.kind}; an {label} is here ({evidence}{with_driver})"


def too_old(build: TorchBuild, driver: str) -> str:
    """Return that NVIDIA's driver is too old for torch's CUDA, as a sentence; empty if it is new enough."""
    major = (build.cuda or "").partition(".")[0]
    oldest = OLDEST_DRIVER.get(int(major), 0) if major.isdigit() else 0
    if int(driver.partition(".")[0]) >= oldest:
        return ""
    return f"NVIDIA's driver {driver} is too old for torch's CUDA {build.cuda}, which needs {oldest} or newer"


def _of_packages(
    recipe: Recipe, build: TorchBuild | None, machine: Machine
) -> list[str]:
    """A vendor's package beside another torch than its row has, or beside another toolkit."""
    found = []
    for row in recipe.rows:
        for package in row.packages:
            name, _, wanted = package.partition("==")
            if not wanted or packages.version(name) != wanted:
                continue
            if build is not None and build.version.partition("+")[0] != row.torch:
                what = f"{name} {wanted} wants torch {row.torch}"
                found.append(f"{what}, and {build.version} is installed")
            toolkit = installed_toolkit(recipe, machine)
            if (
                recipe.toolkit
                and toolkit
                and row.toolkit
                and not _has(row.toolkit, toolkit)
            ):
                what = f"{name} {wanted} wants {recipe.toolkit.name} {row.toolkit.removeprefix('==')}"
                found.append(f"{what}, and {toolkit} is installed")
    return found


def _has(text: str, version: object) -> bool:
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text, prereleases=True).contains(str(version))
