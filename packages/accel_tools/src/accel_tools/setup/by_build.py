"""Plan with PyTorch's own builds: for NVIDIA, AMD, Intel, Apple and the CPU."""

from __future__ import annotations

from packaging.version import Version

from accel_core import torch_build
from accel_tools.setup import builds
from accel_tools.setup.hardware import KEPLER, UNNAMED, VOLTA
from accel_tools.setup.installed import OWN_BUILDS, unfit
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import (
    Part,
    Plan,
    UvChoice,
    requirement,
    with_extra,
    with_plugin,
)

__all__ = ["PYTORCH", "by_build"]

_VENDORS_OWN = {
    "Jetson": "https://forums.developer.nvidia.com/t/pytorch-for-jetson/72048",
    "AMD": "https://rocm.docs.amd.com/",
}
_GFX = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/"
_NVIDIA_DRIVER = "https://www.nvidia.com/Download/index.aspx"
PYTORCH = "https://pytorch.org/get-started/locally/"
_XPU = "https://pytorch.org/docs/stable/notes/get_start_xpu.html"
_FOR_CPU = "For the processor alone: accel setup cpu"
#: Where the hardware is on another machine than this one.
_ELSEWHERE = {
    "NVIDIA GPU": "If it is elsewhere, give the driver's version, which nvidia-smi shows there: "
    "accel setup cuda --driver VERSION",
    "AMD GPU": "If it is elsewhere, give ROCm's version, which is in /opt/rocm/.info/version there: "
    "accel setup rocm --toolkit VERSION",
}
#: Newer ones leave such GPUs alone, by their own message: https://github.com/NixOS/nixos-hardware/issues/1880
_LAST_DRIVER_WITH_VOLTA = 580


def by_build(plan: Plan, machine: Machine, torch: str) -> Plan:
    """Complete the plan for its target; `torch`: the required version, or empty."""
    if plan.target == "NVIDIA GPU" and "Jetson" in plan.kind:
        return _jetson(plan, torch)
    is_apple = plan.target == "Apple GPU"
    if is_apple and not torch and plan.kind.startswith("macOS 13."):
        torch = builds.LAST_ON_MACOS_13
    if unfit := (
        builds.platform_fits(machine.system, machine.architecture, plan.target)
        or builds.python_fits(machine.python, torch)
    ):
        return plan._replace(unknown=unfit, url=PYTORCH)
    if plan.target in OWN_BUILDS:
        return plan._replace(
            unknown=_makers_own(plan.target), url=OWN_BUILDS[plan.target][1]
        )
    if plan.target == "NVIDIA GPU":
        return _nvidia(plan, machine, torch)
    if plan.target == "AMD GPU":
        return _amd(plan, machine, torch)
    if plan.target.startswith("Intel"):
        return _intel(plan, torch)
    if is_apple:
        return _apple(plan, torch)
    if plan.target != "CPU":
        return plan._replace(
            unknown=f"no table says which packages {plan.target} needs", url=PYTORCH
        )
    return _processor(plan, machine, torch)


def _makers_own(label: str) -> str:
    maker, _, kind = label.partition(" ")
    build = torch_build()
    if build is None or unfit(build, label, ""):
        return f"{maker} builds torch for its {kind}s itself, and accel-cuda needs that build"
    what = f"whether torch {build.version}, which is {maker}'s build, is of one release with the driver"
    return f"{what} and the SDK here: compare the three"


def _processor(plan: Plan, machine: Machine, torch: str) -> Plan:
    if machine.system == "linux":
        why = "for the processor; PyPI's build would bring gigabytes of CUDA"
        return _pytorch(plan, torch, builds.Build(builds.CPU, PYTORCH), why)
    part = Part(requirement(torch), "PyPI's build is for the processor", PYTORCH)
    return plan._replace(torch=requirement(torch), parts=(part,))


def _pytorch(plan: Plan, torch: str, build: builds.Build, why: str) -> Plan:
    if unfit := builds.python_fits(
        plan.python, torch or builds.LAST_RELEASE.get(build.name, "")
    ):
        return plan._replace(unknown=unfit, url=PYTORCH)
    part = Part(requirement(torch), why, build.source)
    return plan._replace(
        torch=requirement(torch), torch_backend=build.name, parts=(part,)
    )


def _apple(plan: Plan, torch: str) -> Plan:
    macos = plan.kind.removeprefix("macOS ")
    old = Version(torch or "2.9") <= Version(builds.LAST_ON_MACOS_13)
    needed = "13" if old else "14"
    if macos and Version(macos) < Version(needed):
        what = f"{requirement(torch)} needs macOS {needed} for Apple's GPU, and this is macOS {macos}"
        return plan._replace(unknown=what, url=PYTORCH, notes=(_FOR_CPU,))
    last = macos and Version(macos) < Version("14")
    why = (
        f"the last release with Metal for macOS {macos}"
        if last
        else "PyPI's build for macOS has Metal"
    )
    part = Part(requirement(torch), why, PYTORCH)
    return with_plugin(plan._replace(torch=requirement(torch), parts=(part,)))


def _intel(plan: Plan, torch: str) -> Plan:
    if intel := plan.hardware.intel:
        what = f"PyTorch supports Intel's GPUs from Arc and Core Ultra on, and those here are {intel}"
        named = ("For Arc or Core Ultra: accel setup xpu",) if intel == UNNAMED else ()
        return plan._replace(unknown=what, url=_XPU, notes=(*named, _FOR_CPU))
    why = "PyTorch's build for Intel GPUs; it brings its own runtime"
    return with_plugin(
        _pytorch(plan, torch, builds.Build("xpu", f"{builds.INDEX}/xpu"), why)
    )


def _jetson(plan: Plan, torch: str) -> Plan:
    kind = plan.kind
    if "Thor" not in kind or (torch and Version(torch) < Version("2.9")):
        what = f"this is a {kind}: NVIDIA's wheels for its JetPack fit, and PyTorch's do not"
        return plan._replace(unknown=what, url=_VENDORS_OWN["Jetson"])
    if unfit := builds.python_fits(plan.python, torch):
        return plan._replace(unknown=unfit, url=PYTORCH)
    why = f"PyTorch's build {builds.THOR} has code for the GPU of this {kind}"
    return with_plugin(
        _pytorch(plan, torch, builds.Build(builds.THOR, builds.THOR_SOURCE), why)
    )


def _nvidia(plan: Plan, machine: Machine, torch: str) -> Plan:
    driver, generation = plan.driver, plan.hardware.generation
    on_arm = machine.architecture == "aarch64"
    # For aarch64 the oldest code is sm_80: https://github.com/pytorch/pytorch/pull/163764
    if generation == KEPLER or (on_arm and generation):
        wheels = "wheels for aarch64" if on_arm else "wheels"
        what = f"PyTorch has no {wheels} with code for the GPUs here, from {generation}"
        return plan._replace(unknown=what, url=PYTORCH)
    if not driver and not plan.toolkit:
        return _without_driver(plan, machine)
    if plan.toolkit:
        build = builds.for_toolkit("cu", plan.toolkit, torch, machine.system)
        if not build.name:
            return _no_build(plan, "CUDA", builds.toolkits("cu"), torch)
        if driver and not builds.runs(driver, build.name, machine.system):
            what = (
                f"NVIDIA's driver {driver} is too old for PyTorch's build {build.name}"
            )
            return plan._replace(unknown=what, url=_NVIDIA_DRIVER)
        limit = f"PyTorch's build for CUDA {plan.toolkit} is {build.name}"
        why = _of_toolkit(plan, build, "CUDA") + (
            f", and runs on NVIDIA's driver {driver}" if driver else ""
        )
    else:
        build = builds.for_nvidia(driver, torch, machine.system)
        if not build.name:
            what = (
                f"no build of torch {torch} runs on NVIDIA's driver {driver}".replace(
                    "  ", " "
                )
            )
            return plan._replace(unknown=what, url=_NVIDIA_DRIVER)
        if builds.is_retired(build.name):
            oldest = builds.oldest_driver(machine.system)
            what = f"torch since 2.6 has no build for NVIDIA's driver {driver}, only for {oldest} and newer"
            return plan._replace(unknown=what, url=_NVIDIA_DRIVER)
        limit = f"NVIDIA's driver {driver} runs PyTorch's build {build.name} at most"
        why = f"PyTorch's build {build.name} runs on NVIDIA's driver {driver}"
    if last := builds.LAST_RELEASE.get(build.name):
        old = on_arm and int(build.name[2:]) < int(builds.FIRST_ON_ARM[2:])
        unfit = (
            "it has no wheels for aarch64"
            if old
            else builds.python_fits(machine.python, torch or last)
        )
        if unfit:
            return plan._replace(unknown=f"{limit}: {unfit}", url=_NVIDIA_DRIVER)
    if generation == VOLTA and builds.lacks_volta(build.name):
        return _volta(plan, torch)
    if not torch and _uv_finds_driver(plan, machine):
        plan = plan._replace(uv=UvChoice(f"NVIDIA's driver {driver}"))
    return with_plugin(_pytorch(plan, torch, build, why))


def _volta(plan: Plan, torch: str) -> Plan:
    """The plan for GPUs that newer builds have no code for."""
    if not builds.has(torch, builds.LAST_WITH_VOLTA):
        what = f"torch {torch} has no build with code for the GPUs here, from {VOLTA}"
        return plan._replace(unknown=what, url=PYTORCH)
    build = builds.Build(builds.LAST_WITH_VOLTA, builds.VOLTA_SOURCE)
    why = f"newer builds have no code for the GPUs here, from {VOLTA}"
    why += f"; NVIDIA's driver is {plan.driver}" if plan.driver else ""
    return with_plugin(_pytorch(plan, torch, build, why))


def _uv_finds_driver(plan: Plan, machine: Machine) -> bool:
    """Whether uv would read the version that this plan is for, in the same files.

    Where no file has it, uv needs `nvidia-smi` on `PATH`, and chooses the CPU's build without it.
    """
    is_found = plan.driver == plan.hardware.nvidia
    return is_found and not plan.toolkit and not machine.nvidia_smi


def _without_driver(plan: Plan, machine: Machine) -> Plan:
    in_wsl = plan.kind == "WSL2"
    if machine.system == "linux" and not in_wsl:
        what = "NVIDIA's driver is not loaded, and its version decides which build fits"
        if plan.hardware.generation == VOLTA:
            what += f"; {_LAST_DRIVER_WITH_VOLTA} is the last for the GPUs here, from {VOLTA}"
    else:
        where = "in WSL2" if in_wsl else "here"
        what = f"no file {where} has the version of NVIDIA's driver, and nvidia-smi names none"
    notes = (_ELSEWHERE[plan.target],)
    return plan._replace(unknown=what, url=_NVIDIA_DRIVER, notes=notes)


def _no_build(plan: Plan, toolkit: str, there_are: str, torch: str) -> Plan:
    of_torch = f"torch {torch} has" if torch else "torch since 2.6 has"
    what = f"{of_torch} no build for {toolkit} {plan.toolkit}; PyTorch has builds for {toolkit} {there_are}"
    return plan._replace(unknown=what, url=builds.RELEASES_SOURCE)


def _of_toolkit(plan: Plan, build: builds.Build, toolkit: str) -> str:
    return f"PyTorch's build {build.name} is its newest for {toolkit} {plan.toolkit}"


def _amd(plan: Plan, machine: Machine, torch: str) -> Plan:
    if plan.kind == "WSL2":
        what = "PyTorch has no ROCm wheels for Windows, and AMD has its own for WSL2 and some Radeons"
        return plan._replace(unknown=what, url=_VENDORS_OWN["AMD"])
    if machine.system == "win32":
        return _amd_on_windows(plan, torch)
    if plan.toolkit:
        return _rocm(plan, torch)
    if not plan.hardware.gfx:
        what = "the driver amdgpu names no GPU architecture here (/sys/class/kfd), which decides the build"
        return plan._replace(unknown=what, url=_GFX, notes=(_ELSEWHERE[plan.target],))
    found = [(gfx, builds.for_amd(gfx, torch)) for gfx in plan.hardware.gfx]
    gfx, build = next(((g, b) for g, b in found if b.name), found[0])
    if not build.name:
        return _amd_own(plan, torch, build)
    without = [other for other, its in found if not its.name]
    notes = (
        (f"PyTorch has no wheels for {', '.join(without)}, which is here too",)
        if without
        else ()
    )
    why = f"PyTorch's build {build.name} has code for {gfx}"
    if not torch and not builds.is_vega(gfx):
        # uv itself asks ROCm's rocm_agent_enumerator, which a machine with the driver alone lacks.
        variables = (f"UV_AMD_GPU_ARCHITECTURE={gfx}",)
        plan = plan._replace(uv=UvChoice(f"the AMD GPU architecture {gfx}", variables))
    return with_plugin(_pytorch(plan, torch, build, why))._replace(notes=notes)


def _amd_own(plan: Plan, torch: str, build: builds.Build) -> Plan:
    """The plan for GPUs that PyTorch has no wheels for: AMD's own, if they have code for one of the GPUs."""
    of_torch = f" of torch {torch}" if torch else ""
    lacking = f"PyTorch has no wheels{of_torch} for {', '.join(plan.hardware.gfx)}, by {build.source}"
    known = [gfx for gfx in plan.hardware.gfx if gfx in builds.AMD_TARGETS]
    right = [gfx for gfx in known if gfx not in builds.AMD_WRONG]
    if known and not right:
        what = f"{lacking}; AMD's own are reported to give wrong results"
        return plan._replace(unknown=what, url=builds.AMD_WRONG[known[0]])
    if not right:
        return plan._replace(unknown=lacking, url=_GFX)
    if unfit := builds.amd_own_fits(plan.python, torch):
        return plan._replace(unknown=f"{lacking}; {unfit}", url=_GFX)
    why = f"AMD's build for ROCm 7.14 has code for {right[0]}, and PyTorch's has none"
    return _from_amd(plan, torch, f"device-{right[0]}", why)


def _amd_on_windows(plan: Plan, torch: str) -> Plan:
    """The plan for Windows, where no file names the GPU's architecture."""
    lacking = "PyTorch has no ROCm wheels for Windows"
    if plan.toolkit:
        what = f"{lacking}, and AMD's own bring their ROCm: give no --toolkit"
        return plan._replace(unknown=what, url=_VENDORS_OWN["AMD"])
    if unfit := builds.amd_own_fits(plan.python, torch):
        return plan._replace(unknown=f"{lacking}; {unfit}", url=_VENDORS_OWN["AMD"])
    why = f"{lacking}; AMD's build for ROCm 7.14 with code for all of its GPUs (10 GB)"
    targets = [gfx for gfx in builds.AMD_TARGETS if gfx not in builds.AMD_WRONG]
    notes = (
        f"AMD's build has code for {', '.join(targets)}, and for no other GPU",
        "If you know the architecture, replace device-all by device-gfxNNNN: about 2 GB",
    )
    return _from_amd(plan, torch, "device-all", why)._replace(notes=notes)


def _from_amd(plan: Plan, torch: str, extra: str, why: str) -> Plan:
    """The plan with torch from AMD's index, which lacks every package that torch does not need."""
    needed = with_extra(requirement(torch), extra)
    part = Part(needed, why, builds.AMD_SOURCE)
    return with_plugin(
        plan._replace(torch=needed, torch_index=builds.AMD_INDEX, parts=(part,))
    )


def _rocm(plan: Plan, torch: str) -> Plan:
    """The plan for a version of ROCm that was given, and the GPUs of this machine, if it has AMD's."""
    build = builds.for_toolkit("rocm", plan.toolkit, torch)
    if not build.name and plan.toolkit.partition(".")[0] == "10":
        return _rocm_10(plan, torch)
    if not build.name:
        return _no_build(plan, "ROCm", builds.toolkits("rocm"), torch)
    gpus = builds.gpus_of(build.name)
    here = [gfx for gfx in plan.hardware.gfx if gfx in gpus]
    if plan.hardware.gfx and not here:
        what = f"PyTorch's build {build.name} has no code for {', '.join(plan.hardware.gfx)}"
        return plan._replace(unknown=what, url=_GFX)
    why = _of_toolkit(plan, build, "ROCm") + (
        f", and has code for {here[0]}" if here else ""
    )
    notes = (
        ()
        if here
        else (
            f"PyTorch's build {build.name} has code for {', '.join(gpus)}, and for no other GPU",
        )
    )
    return with_plugin(_pytorch(plan, torch, build, why))._replace(notes=notes)


def _rocm_10(plan: Plan, torch: str) -> Plan:
    """The plan for ROCm 10, which AMD's index alone has, on GPUs with which AMD tested it."""
    gpus = builds.AMD_NEXT_TARGETS
    here = [gfx for gfx in plan.hardware.gfx if gfx in gpus]
    if not here:
        what = (
            f"AMD's index of ROCm 10 is known to have code for {', '.join(gpus)} alone"
        )
        return plan._replace(unknown=what, url=builds.AMD_NEXT_SOURCE)
    needed = with_extra(requirement(torch), f"device-{here[0]}")
    why = f"AMD's build for ROCm 10 has code for {here[0]}"
    part = Part(needed, why, builds.AMD_NEXT_SOURCE)
    return with_plugin(
        plan._replace(torch=needed, torch_index=builds.AMD_NEXT_INDEX, parts=(part,))
    )
