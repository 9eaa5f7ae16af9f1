"""The plan for a machine: its parts with their reasons, or why there is none and where to read on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from accel_core.probing import host, installed, vendors
from accel_tools.setup import builds
from accel_tools.setup.hardware import KEPLER, UNNAMED, VOLTA, Hardware, Present, seen
from accel_tools.setup.machines import ALPINE, Machine
from accel_tools.setup.recipes import Recipe, Row, installed_toolkit, recipes

__all__ = ["Part", "Plan", "names", "planned"]

_VENDORS_OWN = {
    "Jetson": "https://forums.developer.nvidia.com/t/pytorch-for-jetson/72048",
    "AMD": "https://rocm.docs.amd.com/",
}
_GFX = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/"
_NVIDIA_DRIVER = "https://www.nvidia.com/Download/index.aspx"
_PYTORCH = "https://pytorch.org/get-started/locally/"
_XPU = "https://pytorch.org/docs/stable/notes/get_start_xpu.html"
_FOR_CPU = "For the processor alone: accel setup cpu"
#: Newer ones leave such GPUs alone, by their own message: https://github.com/NixOS/nixos-hardware/issues/1880
_LAST_DRIVER_WITH_VOLTA = 580


class Part(NamedTuple):
    """One part of the command, or what must be there before it."""

    #: A requirement, `"torch-npu==2.12.0"`, or a thing, `"CANN 9.1.0"`.
    what: str
    why: str
    #: Who says so: an address, `"uv 0.13.9"`, or a dated table.
    source: str = ""


class Plan(NamedTuple):
    """The requirements and indexes to install from; the command is made of them."""

    hardware: Hardware
    #: The hardware that the plan is for: `"NVIDIA GPU"`; `"CPU"` without any.
    target: str
    #: Name of the backend: `"cuda"`.
    backend: str
    #: The Python that it is for: `"3.12"`.
    python: str
    #: torch's requirement: `"torch==2.12.0"`; empty where nothing is known to fit.
    torch: str = ""
    #: PyTorch's index by name, `"cu130"`; empty for PyPI.
    torch_backend: str = ""
    #: Requirements that PyPI has.
    packages: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    #: Why there is no command, and the address to read on at.
    unknown: str = ""
    url: str = ""
    notes: tuple[str, ...] = ()


def names() -> tuple[str, ...]:
    """The backends that can be asked for."""
    tables, _ = recipes()
    return tuple(sorted({"cpu", *vendors.FIRST_PARTY, *tables}))


def planned(machine: Machine, name: str = "", torch: str = "", python: str = "") -> Plan:
    """Plan for the best hardware of the machine, or for the backend `name`, present or not.

    `torch`: the version that it must be; empty for the newest that fits.
    """
    hardware = seen(machine)
    machine = machine._replace(python=python or machine.python)
    tables, problems = recipes()
    of_name = [p for p in hardware.present if not name or p.backend == name]
    here = of_name[0] if of_name else Present(_label(name), name, "") if name not in ("", "cpu") else None
    if name == "xpu" and hardware.intel == UNNAMED:
        hardware = hardware._replace(intel="")
    plan = _for(machine, hardware, here, tables, torch)
    card = next((p for p in of_name if p.label == "Intel discrete GPU"), None)
    if plan.unknown and not name and plan.target == "AMD GPU" and hardware.gfx and card:
        here, plan = card, _for(machine, hardware, card, tables, torch)  # AMD's is a part of the processor
    others = [p for p in hardware.present if here is not None and p is not here]
    if machine.is_here:
        plan = _without_our_installed(plan)
    return plan._replace(notes=(*plan.notes, *_of_others(plan, others), *problems))


def _without_our_installed(plan: Plan) -> Plan:
    ours = {name for name in vendors.FIRST_PARTY.values() if installed.version(name)}
    return plan._replace(
        packages=tuple(package for package in plan.packages if package not in ours),
        parts=tuple(part for part in plan.parts if part.what not in ours),
    )


def _label(name: str) -> str:
    return next((v.label for v in vendors.VENDORS if v.backend == name), name)


def _of_others(plan: Plan, others: Sequence[Present]) -> tuple[str, ...]:
    labels = list(dict.fromkeys(o.label for o in others if o.label != plan.target))
    if not labels:
        return ()
    return (
        f"also here: {', '.join(labels)}. An environment holds one build of torch: use another for each.",
    )


def _for(
    machine: Machine, hardware: Hardware, here: Present | None, tables: dict[str, Recipe], torch: str
) -> Plan:
    target, backend = (here.label, here.backend) if here else ("CPU", "cpu")
    plan = Plan(hardware, target, backend, machine.python)
    if hardware.kind.startswith(("NVIDIA Jetson", "Jetson")):
        return _jetson(plan._replace(target="NVIDIA GPU", backend="cuda"), torch)
    if machine.system == "darwin" and machine.architecture != "arm64":
        what = (
            "PyTorch has no wheels for Macs with Intel processors since torch 2.3; Apple silicon needs a "
            "Python built for arm64"
        )
        return plan._replace(unknown=what, url=_PYTORCH)
    if host.path_exists(ALPINE, machine.root):
        what = "this is Alpine Linux, whose C library is musl, and PyTorch's wheels need glibc"
        return plan._replace(unknown=what, url=_PYTORCH)
    if backend in tables and target not in ("NVIDIA GPU", "AMD GPU"):
        return _by_recipe(plan, tables[backend], machine, torch)
    if target == "Apple GPU" and not torch and hardware.kind.startswith("macOS 13."):
        torch = builds.LAST_ON_MACOS_13
    if unfit := (
        builds.platform_fits(machine.system, machine.architecture, target)
        or builds.python_fits(machine.python, torch)
    ):
        return plan._replace(unknown=unfit, url=_PYTORCH)
    by_label = {"NVIDIA GPU": _nvidia, "AMD GPU": _amd}
    if target in by_label:
        return by_label[target](plan, machine, torch)
    if target.startswith("Intel"):
        return _intel(plan, torch)
    if target == "Apple GPU":
        return _apple(plan, torch)
    if here is None and machine.system == "linux":
        why = "for the processor; PyPI's build would bring gigabytes of CUDA"
        return _pytorch(plan, torch, builds.Build(builds.CPU, _PYTORCH), why)
    if here is None:
        part = Part(_requirement(torch), "PyPI's build is for the processor", _PYTORCH)
        return plan._replace(torch=_requirement(torch), parts=(part,))
    return plan._replace(unknown=f"no table says which packages {target} needs", url=_PYTORCH)


def _requirement(torch: str) -> str:
    return f"torch=={torch}" if torch else "torch"


# --- PyTorch's own builds ------------------------------------------------------------------------------


def _pytorch(plan: Plan, torch: str, build: builds.Build, why: str) -> Plan:
    if unfit := builds.python_fits(plan.python, torch or builds.LAST_RELEASE.get(build.name, "")):
        return plan._replace(unknown=unfit, url=_PYTORCH)
    part = Part(_requirement(torch), why, build.source)
    return plan._replace(torch=_requirement(torch), torch_backend=build.name, parts=(part,))


def _with_plugin(plan: Plan) -> Plan:
    """Add our plugin, unless it is the CPU's or there is no plan."""
    plugin = vendors.FIRST_PARTY.get(plan.backend, "")
    if not plugin or plan.unknown:
        return plan
    part = Part(plugin, f"accel's plugin for the {plan.target}")
    return plan._replace(packages=(*plan.packages, plugin), parts=(*plan.parts, part))


def _apple(plan: Plan, torch: str) -> Plan:
    macos = plan.hardware.kind.removeprefix("macOS ")
    old = Version(torch or "2.9") <= Version(builds.LAST_ON_MACOS_13)
    needed = "13" if old else "14"
    if macos and Version(macos) < Version(needed):
        what = f"{_requirement(torch)} needs macOS {needed} for Apple's GPU, and this is macOS {macos}"
        return plan._replace(unknown=what, url=_PYTORCH, notes=(_FOR_CPU,))
    last = macos and Version(macos) < Version("14")
    why = f"the last release with Metal for macOS {macos}" if last else "PyPI's build for macOS has Metal"
    part = Part(_requirement(torch), why, _PYTORCH)
    return _with_plugin(plan._replace(torch=_requirement(torch), parts=(part,)))


def _intel(plan: Plan, torch: str) -> Plan:
    if intel := plan.hardware.intel:
        what = f"PyTorch supports Intel's GPUs from Arc and Core Ultra on, and those here are {intel}"
        named = ("For Arc or Core Ultra: accel setup xpu",) if intel == UNNAMED else ()
        return plan._replace(unknown=what, url=_XPU, notes=(*named, _FOR_CPU))
    why = "PyTorch's build for Intel GPUs; it brings its own runtime"
    return _with_plugin(_pytorch(plan, torch, builds.Build("xpu", f"{builds.INDEX}/xpu"), why))


def _jetson(plan: Plan, torch: str) -> Plan:
    kind = plan.hardware.kind
    if "Thor" not in kind or (torch and Version(torch) < Version("2.9")):
        what = f"this is a {kind}: NVIDIA's wheels for its JetPack fit, and PyTorch's do not"
        return plan._replace(unknown=what, url=_VENDORS_OWN["Jetson"])
    if unfit := builds.python_fits(plan.python, torch):
        return plan._replace(unknown=unfit, url=_PYTORCH)
    why = f"PyTorch's build {builds.THOR} has code for the GPU of this {kind}"
    return _with_plugin(_pytorch(plan, torch, builds.Build(builds.THOR, builds.THOR_SOURCE), why))


def _nvidia(plan: Plan, machine: Machine, torch: str) -> Plan:
    driver, generation = plan.hardware.nvidia, plan.hardware.generation
    on_arm = machine.architecture == "aarch64"
    # For aarch64 the oldest code is sm_80: https://github.com/pytorch/pytorch/pull/163764
    if generation == KEPLER or (on_arm and generation):
        wheels = "wheels for aarch64" if on_arm else "wheels"
        what = f"PyTorch has no {wheels} with code for the GPUs here, from {generation}"
        return plan._replace(unknown=what, url=_PYTORCH)
    if not driver:
        in_wsl = plan.hardware.kind == "WSL2"
        if machine.system == "linux" and not in_wsl:
            what = "NVIDIA's driver is not loaded, and its version decides which build fits"
            if generation == VOLTA:
                what += f"; {_LAST_DRIVER_WITH_VOLTA} is the last for the GPUs here, from {VOLTA}"
            return plan._replace(unknown=what, url=_NVIDIA_DRIVER)
        what = f"no file {'in WSL2' if in_wsl else 'here'} has the version of NVIDIA's driver"
        if machine.is_here:
            return plan._replace(unknown=f"{what}, and nvidia-smi names none", url=_NVIDIA_DRIVER)
        notes = ("On that machine `accel setup` asks nvidia-smi.",)
        return plan._replace(unknown=what, url=_NVIDIA_DRIVER, notes=notes)
    build = builds.for_nvidia(driver, torch, machine.system)
    if not build.name:
        what = f"no build of torch {torch} runs on NVIDIA's driver {driver}".replace("  ", " ")
        return plan._replace(unknown=what, url=_NVIDIA_DRIVER)
    if builds.is_retired(build.name):
        oldest = builds.oldest_driver(machine.system)
        what = f"torch since 2.6 has no build for NVIDIA's driver {driver}, only for {oldest} and newer"
        return plan._replace(unknown=what, url=_NVIDIA_DRIVER)
    if last := builds.LAST_RELEASE.get(build.name):
        old = on_arm and int(build.name[2:]) < int(builds.FIRST_ON_ARM[2:])
        unfit = "it has no wheels for aarch64" if old else builds.python_fits(machine.python, torch or last)
        if unfit:
            what = f"NVIDIA's driver {driver} runs PyTorch's build {build.name} at most: {unfit}"
            return plan._replace(unknown=what, url=_NVIDIA_DRIVER)
    why = f"PyTorch's build {build.name} runs on NVIDIA's driver {driver}"
    if generation == VOLTA and builds.lacks_volta(build.name):
        if not builds.has(torch, builds.LAST_WITH_VOLTA):
            what = f"torch {torch} has no build with code for the GPUs here, from {VOLTA}"
            return plan._replace(unknown=what, url=_PYTORCH)
        build = builds.Build(builds.LAST_WITH_VOLTA, builds.VOLTA_SOURCE)
        why = f"newer builds have no code for the GPUs here, from {VOLTA}; NVIDIA's driver is {driver}"
    return _with_plugin(_pytorch(plan, torch, build, why))


def _amd(plan: Plan, machine: Machine, torch: str) -> Plan:
    if machine.system == "win32" or plan.hardware.kind == "WSL2":
        what = "PyTorch has no ROCm wheels for Windows, and AMD has its own for WSL2 and some Radeons"
        return plan._replace(unknown=what, url=_VENDORS_OWN["AMD"])
    if not plan.hardware.gfx:
        what = "the driver amdgpu names no GPU architecture here (/sys/class/kfd), which decides the build"
        return plan._replace(unknown=what, url=_GFX)
    found = [(gfx, builds.for_amd(gfx, torch)) for gfx in plan.hardware.gfx]
    gfx, build = next(((g, b) for g, b in found if b.name), found[0])
    if not build.name:
        of_torch = f" of torch {torch}" if torch else ""
        what = f"PyTorch has no wheels{of_torch} for {', '.join(plan.hardware.gfx)}, by {build.source}"
        return plan._replace(unknown=what, url=_GFX)
    without = [other for other, its in found if not its.name]
    notes = (f"PyTorch has no wheels for {', '.join(without)}, which is here too",) if without else ()
    why = f"PyTorch's build {build.name} has code for {gfx}"
    return _with_plugin(_pytorch(plan, torch, build, why))._replace(notes=notes)


# --- Vendors' tables -----------------------------------------------------------------------------------


def _by_recipe(plan: Plan, recipe: Recipe, machine: Machine, torch: str) -> Plan:
    notes: tuple[str, ...] = (recipe.note,) if recipe.note else ()
    if not recipe.rows:
        what = f"no public table says which packages the {plan.target} needs"
        return plan._replace(unknown=what, url=recipe.url, notes=notes)
    toolkit = installed_toolkit(recipe, machine)
    rows = [row for row in recipe.rows if _fits(row, machine, torch)]
    if not rows:
        wanted = f"torch {torch}, " if torch else ""
        what = f"no row of the vendor's table has {wanted}Python {machine.python} on {machine.architecture}"
        return plan._replace(unknown=what, url=recipe.url, notes=notes)
    able = [row for row in rows if toolkit is None or not row.toolkit or toolkit in _range(row.toolkit)]
    if not able:
        name = recipe.toolkit.name if recipe.toolkit else "the toolkit"
        what = (
            f"{name} {toolkit} is here, and the vendor's table has {_enumerated(rows)} for "
            f"Python {machine.python}"
        )
        return plan._replace(unknown=what, url=recipe.url, notes=notes)
    best = max(able, key=_newness)
    if recipe.is_old(dt.datetime.now(tz=dt.timezone.utc).date()):
        notes += (f"This table is from {best.date}, more than a year ago: compare it with {recipe.url}",)
    return _with_plugin(_of_row(plan, recipe, best, machine, toolkit))._replace(notes=notes)


def _fits(row: Row, machine: Machine, torch: str) -> bool:
    return (
        (not torch or Version(row.torch) == Version(torch))
        and (not row.python or machine.python in SpecifierSet(row.python))
        and (not row.architectures or machine.architecture in row.architectures)
        and machine.system == "linux"
    )


def _newness(row: Row) -> tuple[Version, Version]:
    return Version(row.torch), Version(row.packages[0].partition("==")[2] or "0")


def _range(text: str) -> SpecifierSet:
    return SpecifierSet(text, prereleases=True)


def _enumerated(rows: Sequence[Row]) -> str:
    wanted = list(dict.fromkeys(row.toolkit for row in rows if row.toolkit))
    return ", ".join(wanted[:4]) or "none"


def _of_row(plan: Plan, recipe: Recipe, row: Row, machine: Machine, toolkit: Version | None) -> Plan:
    source = f"{row.source} ({row.date})"
    index = recipe.torch_index.get(machine.architecture, "").removeprefix(f"{builds.INDEX}/")
    kind = "PyTorch's CPU build" if index == builds.CPU else "PyPI's build"
    driver, *needed = row.packages
    parts = [
        Part(f"torch=={row.torch}", f"{kind}, the release that {driver} is made for", source),
        Part(driver, f"drives the {plan.target}", source),
        *(Part(package, f"the vendor's instructions install it with {driver}", source) for package in needed),
    ]
    if recipe.toolkit and row.toolkit:
        needs = f"{recipe.toolkit.name} {row.toolkit.removeprefix('==')}"
        why = (
            f"{toolkit} is installed" if toolkit else f"missing here: install it first, {recipe.toolkit.url}"
        )
        parts.insert(0, Part(needs, why, source))
    return plan._replace(
        torch=f"torch=={row.torch}",
        torch_backend=index,
        packages=row.packages,
        parts=tuple(parts),
        url=recipe.url,
    )
