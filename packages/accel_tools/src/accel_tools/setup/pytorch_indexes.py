"""Complete a plan with PyTorch's builds for NVIDIA, AMD, Intel and Apple GPUs and the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from packaging.version import Version

from accel_core import torch_build
from accel_core.hardware import bus
from accel_tools.setup import builds
from accel_tools.setup.builds import Build
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

__all__ = ["PYTORCH", "plan_with_pytorch"]

_JETSON = "https://forums.developer.nvidia.com/t/pytorch-for-jetson/72048"
_ROCM = "https://rocm.docs.amd.com/"
_GFX = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/"
_NVIDIA_DRIVER = "https://www.nvidia.com/Download/index.aspx"
PYTORCH = "https://pytorch.org/get-started/locally/"
_XPU = "https://pytorch.org/docs/stable/notes/get_start_xpu.html"
_FOR_CPU = "For the CPU only: accel setup cpu"
#: The next step if the hardware is on a different machine.
_ELSEWHERE = {
    "NVIDIA GPU": "If the GPU is on a different machine, give the version of the driver, which nvidia-smi "
    "shows there: accel setup cuda --driver VERSION",
    "AMD GPU": "If the GPU is on a different machine, give the version of ROCm, which is in "
    "/opt/rocm/.info/version there: accel setup rocm --toolkit VERSION",
}
#: The last driver for GPUs from Maxwell to Volta: https://github.com/NixOS/nixos-hardware/issues/1880
_LAST_DRIVER_WITH_VOLTA = 580


class _NoBuildError(Exception):
    """No build fits; `reason`, `url` and `notes` are added to the plan."""

    def __init__(self, reason: str, url: str, *notes: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.url = url
        self.notes = notes


def plan_with_pytorch(plan: Plan, machine: Machine, torch: str) -> Plan:
    """Return the plan with the build of torch for its target.

    `torch` is the required release, or an empty string for the newest. If no build fits, the plan
    has the reason in `unknown`.
    """
    try:
        return _plan(plan, machine, torch)
    except _NoBuildError as error:
        notes = (*plan.notes, *error.notes)
        return plan._replace(unknown=error.reason, url=error.url, notes=notes)


def _plan(plan: Plan, machine: Machine, torch: str) -> Plan:
    if plan.target == "NVIDIA GPU" and "Jetson" in plan.kind:
        return _for_jetson(plan, torch)
    is_macos_13 = plan.target == "Apple GPU" and plan.kind.startswith("macOS 13.")
    torch = torch or (builds.LAST_ON_MACOS_13 if is_macos_13 else "")
    _require_wheels(plan, machine, torch)
    if plan.target in OWN_BUILDS:
        url = OWN_BUILDS[plan.target][1]
        raise _NoBuildError(_vendor_build(plan.target), url)
    for_target = _PLANS.get(plan.target)
    if for_target is None:
        raise _NoBuildError(f"no table lists the packages for {plan.target}", PYTORCH)
    return for_target(plan, machine, torch)


def _require_wheels(plan: Plan, machine: Machine, torch: str) -> None:
    """Raise `_NoBuildError` if torch has no wheels for the machine's system or Python."""
    reason = builds.why_no_platform(machine.system, machine.architecture, plan.target)
    reason = reason or builds.why_no_python(machine.python, torch)
    if reason:
        raise _NoBuildError(reason, PYTORCH)


def _vendor_build(label: str) -> str:
    """Return why there is no plan for hardware whose vendor builds torch itself."""
    vendor, _, kind = label.partition(" ")
    build = torch_build()
    if build is None or unfit(build, label, ""):
        return f"{vendor} builds torch for its {kind}s itself, and accel-cuda needs this build"
    return (
        f"torch {build.version}, the driver and the SDK must be from the same release "
        f"by {vendor}: compare the three versions"
    )


# --- The CPU, Apple, Intel -----------------------------------------------------------


def _for_cpu(plan: Plan, machine: Machine, torch: str) -> Plan:
    if machine.system == "linux":
        why = "for the CPU; PyPI's build would install gigabytes of CUDA libraries"
        return _with_build(plan, torch, Build(builds.CPU, PYTORCH), why)
    part = Part(requirement(torch), "PyPI's build is for the CPU", PYTORCH)
    return plan._replace(torch=requirement(torch), parts=(part,))


def _with_build(plan: Plan, torch: str, build: Build, why: str) -> Plan:
    """Return the plan with the build of torch; `why` is the reason that the plan's table shows."""
    release = torch or builds.LAST_RELEASE.get(build.name, "")
    reason = builds.why_no_python(plan.python, release)
    if reason:
        raise _NoBuildError(reason, PYTORCH)
    part = Part(requirement(torch), why, build.source)
    return plan._replace(
        torch=requirement(torch), torch_backend=build.name, parts=(part,)
    )


def _for_apple(plan: Plan, _machine: Machine, torch: str) -> Plan:
    macos = plan.kind.removeprefix("macOS ")
    supports_13 = Version(torch or "2.9") <= Version(builds.LAST_ON_MACOS_13)
    oldest = "13" if supports_13 else "14"
    if macos and Version(macos) < Version(oldest):
        reason = (
            f"{requirement(torch)} needs macOS {oldest} for Apple's GPU, "
            f"but this is macOS {macos}"
        )
        raise _NoBuildError(reason, PYTORCH, _FOR_CPU)
    why = "PyPI's build for macOS supports Metal"
    if macos and Version(macos) < Version("14"):
        why = f"the last release that supports Metal on macOS {macos}"
    part = Part(requirement(torch), why, PYTORCH)
    return with_plugin(plan._replace(torch=requirement(torch), parts=(part,)))


def _for_intel(plan: Plan, _machine: Machine, torch: str) -> Plan:
    intel = plan.hardware.intel
    if intel:
        reason = (
            "PyTorch supports Intel GPUs from Arc and Core Ultra on, "
            f"but the GPUs of this machine are {intel}"
        )
        notes = [_FOR_CPU]
        if intel == UNNAMED:
            notes.insert(0, "For Arc or Core Ultra: accel setup xpu")
        raise _NoBuildError(reason, _XPU, *notes)
    build = Build("xpu", f"{builds.INDEX}/xpu")
    why = "PyTorch's build for Intel GPUs, which includes the runtime"
    return with_plugin(_with_build(plan, torch, build, why))


# --- NVIDIA --------------------------------------------------------------------------


def _for_jetson(plan: Plan, torch: str) -> Plan:
    is_supported = "Thor" in plan.kind
    if torch and Version(torch) < Version("2.9"):
        is_supported = False
    if not is_supported:
        reason = (
            f"this is {bus.with_article(plan.kind)}, which needs NVIDIA's wheels for its JetPack "
            "instead of PyTorch's"
        )
        raise _NoBuildError(reason, _JETSON)
    reason = builds.why_no_python(plan.python, torch)
    if reason:
        raise _NoBuildError(reason, PYTORCH)
    build = Build(builds.THOR, builds.THOR_SOURCE)
    why = f"PyTorch's build {builds.THOR} has code for the GPU of this {plan.kind}"
    return with_plugin(_with_build(plan, torch, build, why))


class _Fit(NamedTuple):
    """A build that fits the driver or the toolkit."""

    build: Build
    #: Why the build fits, for the plan's table.
    why: str
    #: Why a newer build does not fit, for messages that the build itself cannot be used.
    limit: str


def _for_nvidia(plan: Plan, machine: Machine, torch: str) -> Plan:
    _require_gpu_code(plan, machine)
    if plan.toolkit:
        fit = _fit_toolkit(plan, machine, torch)
    elif plan.driver:
        fit = _fit_driver(plan, machine, torch)
    else:
        raise _without_driver(plan, machine)
    _require_wheels_of_build(fit, machine, torch)
    is_volta = plan.hardware.generation == VOLTA
    if is_volta and builds.lacks_volta(fit.build.name):
        return _for_volta(plan, torch)
    if not torch and _uv_finds_driver(plan, machine):
        plan = plan._replace(uv=UvChoice(f"NVIDIA's driver {plan.driver}"))
    return with_plugin(_with_build(plan, torch, fit.build, fit.why))


def _require_gpu_code(plan: Plan, machine: Machine) -> None:
    """Raise `_NoBuildError` if no wheel has code for the machine's NVIDIA GPUs."""
    generation = plan.hardware.generation
    on_arm = machine.architecture == "aarch64"
    # The wheels for aarch64 have code for sm_80 and newer:
    # https://github.com/pytorch/pytorch/pull/163764
    if generation == KEPLER or (on_arm and generation):
        wheels = "wheels for aarch64" if on_arm else "wheels"
        reason = f"PyTorch has no {wheels} with code for the GPUs of this machine, from {generation}"
        raise _NoBuildError(reason, PYTORCH)


def _fit_toolkit(plan: Plan, machine: Machine, torch: str) -> _Fit:
    """Return the build for the requested CUDA; raise `_NoBuildError` if no build fits."""
    build = builds.for_toolkit("cu", plan.toolkit, torch, machine.system)
    if not build.name:
        raise _no_build(plan, "CUDA", builds.toolkits("cu"), torch)
    why = _why_toolkit(plan, build, "CUDA")
    if plan.driver:
        if not builds.can_run(plan.driver, build.name, machine.system):
            reason = f"NVIDIA's driver {plan.driver} is too old for PyTorch's build {build.name}"
            raise _NoBuildError(reason, _NVIDIA_DRIVER)
        why += f", and runs on NVIDIA's driver {plan.driver}"
    limit = f"PyTorch's build for CUDA {plan.toolkit} is {build.name}"
    return _Fit(build, why, limit)


def _fit_driver(plan: Plan, machine: Machine, torch: str) -> _Fit:
    """Return the newest build that the driver can run; raise `_NoBuildError` if no build fits."""
    driver = plan.driver
    build = builds.for_nvidia(driver, torch, machine.system)
    if not build.name:
        release = f"torch {torch}" if torch else "torch"
        reason = f"no build of {release} runs on NVIDIA's driver {driver}"
        raise _NoBuildError(reason, _NVIDIA_DRIVER)
    if builds.is_retired(build.name):
        oldest = builds.oldest_driver(machine.system)
        reason = (
            f"torch 2.6 and newer have no build for NVIDIA's driver {driver}, "
            f"only for driver {oldest} and newer"
        )
        raise _NoBuildError(reason, _NVIDIA_DRIVER)
    why = f"PyTorch's build {build.name} runs on NVIDIA's driver {driver}"
    limit = f"PyTorch's build {build.name} is the newest that NVIDIA's driver {driver} can run"
    return _Fit(build, why, limit)


def _require_wheels_of_build(fit: _Fit, machine: Machine, torch: str) -> None:
    """Raise `_NoBuildError` if a dropped build has no wheels for the machine's architecture or Python."""
    name = fit.build.name
    last_release = builds.LAST_RELEASE.get(name)
    if last_release is None:
        return
    is_before_arm = int(name[2:]) < int(builds.FIRST_ON_ARM[2:])
    reason = builds.why_no_python(machine.python, torch or last_release)
    if machine.architecture == "aarch64" and is_before_arm:
        reason = "this build has no wheels for aarch64"
    if reason:
        raise _NoBuildError(f"{fit.limit}: {reason}", _NVIDIA_DRIVER)


def _for_volta(plan: Plan, torch: str) -> Plan:
    """Return the plan for GPUs for which newer builds have no code."""
    if not builds.has_build(torch, builds.LAST_WITH_VOLTA):
        reason = f"torch {torch} has no build with code for the GPUs of this machine, from {VOLTA}"
        raise _NoBuildError(reason, PYTORCH)
    build = Build(builds.LAST_WITH_VOLTA, builds.VOLTA_SOURCE)
    why = f"newer builds have no code for the GPUs of this machine, from {VOLTA}"
    if plan.driver:
        why += f"; NVIDIA's driver is {plan.driver}"
    return with_plugin(_with_build(plan, torch, build, why))


def _uv_finds_driver(plan: Plan, machine: Machine) -> bool:
    """Return whether uv would find the driver's version of this plan in the machine's files.

    If no file contains the version, uv needs `nvidia-smi` on `PATH`; without it, uv chooses the
    CPU build.
    """
    is_installed = plan.driver == plan.hardware.nvidia
    return is_installed and not plan.toolkit and not machine.nvidia_smi


def _without_driver(plan: Plan, machine: Machine) -> _NoBuildError:
    in_wsl = plan.kind == "WSL2"
    if machine.system == "linux" and not in_wsl:
        reason = (
            "NVIDIA's driver is not loaded, but its version determines which build fits"
        )
        if plan.hardware.generation == VOLTA:
            reason += (
                f"; {_LAST_DRIVER_WITH_VOLTA} is the last driver for the GPUs of this "
                f"machine, from {VOLTA}"
            )
    else:
        where = "in WSL2" if in_wsl else "on this machine"
        reason = (
            f"no file {where} contains the version of NVIDIA's driver, and nvidia-smi "
            "does not report it"
        )
    return _NoBuildError(reason, _NVIDIA_DRIVER, _ELSEWHERE[plan.target])


def _no_build(plan: Plan, toolkit: str, versions: str, torch: str) -> _NoBuildError:
    release = f"torch {torch}" if torch else "torch since 2.6"
    reason = (
        f"{release} has no build for {toolkit} {plan.toolkit}; "
        f"PyTorch has builds for {toolkit} {versions}"
    )
    return _NoBuildError(reason, builds.RELEASES_SOURCE)


def _why_toolkit(plan: Plan, build: Build, toolkit: str) -> str:
    return f"PyTorch's build {build.name} is the newest for {toolkit} {plan.toolkit}"


# --- AMD -----------------------------------------------------------------------------


def _for_amd(plan: Plan, machine: Machine, torch: str) -> Plan:
    if machine.system == "win32":
        lacking = "PyTorch has no ROCm wheels for Windows"
        return _for_amd_without_architecture(plan, torch, lacking)
    if plan.kind == "WSL2":
        lacking = (
            "PyTorch's ROCm wheels need the kernel driver amdgpu, which WSL2 lacks"
        )
        note = (
            "AMD supports WSL2 on Windows 11 for some Radeon and Ryzen GPUs. AMD's build also needs "
            f"AMD's driver for Windows, and librocdxg in the Linux distribution: {builds.AMD_WSL}"
        )
        return _for_amd_without_architecture(plan, torch, lacking, note)
    if plan.toolkit:
        return _for_rocm(plan, torch)
    if not plan.hardware.gfx:
        reason = (
            "the driver amdgpu does not report the GPU architecture (/sys/class/kfd), which "
            "determines the build"
        )
        raise _NoBuildError(reason, _GFX, _ELSEWHERE[plan.target])
    return _for_gfx(plan, torch)


def _for_gfx(plan: Plan, torch: str) -> Plan:
    """Return the plan for the GPU architectures of this machine."""
    by_gpu = {gfx: builds.for_amd(gfx, torch) for gfx in plan.hardware.gfx}
    supported = [gfx for gfx in by_gpu if by_gpu[gfx].name]
    unsupported = [gfx for gfx in by_gpu if gfx not in supported]
    if not supported:
        source = by_gpu[unsupported[0]].source
        return _from_amd_for_gfx(plan, torch, _no_wheels(unsupported, torch, source))
    gfx = supported[0]
    build = by_gpu[gfx]
    if not torch and not builds.is_vega(gfx):
        # uv would run rocm_agent_enumerator of ROCm, which a machine with only the driver lacks.
        variables = (f"UV_AMD_GPU_ARCHITECTURE={gfx}",)
        plan = plan._replace(uv=UvChoice(f"the AMD GPU architecture {gfx}", variables))
    why = f"PyTorch's build {build.name} has code for {gfx}"
    plan = with_plugin(_with_build(plan, torch, build, why))
    if unsupported:
        note = f"PyTorch has no wheels for {', '.join(unsupported)}, which this machine also has"
        plan = plan._replace(notes=(*plan.notes, note))
    return plan


def _no_wheels(gpus: Sequence[str], torch: str, source: str) -> _NoBuildError:
    release = f" of torch {torch}" if torch else ""
    reason = (
        f"PyTorch has no wheels{release} for {', '.join(gpus)}, according to {source}"
    )
    return _NoBuildError(reason, _GFX)


def _from_amd_for_gfx(plan: Plan, torch: str, lacking: _NoBuildError) -> Plan:
    """Return the plan with AMD's wheels for GPUs for which PyTorch has no wheels.

    Raises `_NoBuildError` with the reason of `lacking` if AMD's wheels do not fit either.
    """
    known = [gfx for gfx in plan.hardware.gfx if gfx in builds.AMD_TARGETS]
    right = [gfx for gfx in known if gfx not in builds.AMD_WRONG]
    if not known:
        raise lacking
    if not right:
        reason = f"{lacking.reason}; AMD's wheels are reported to compute wrong results"
        raise _NoBuildError(reason, builds.AMD_WRONG[known[0]])
    reason = builds.why_not_from_amd(plan.python, torch)
    if reason:
        raise _NoBuildError(f"{lacking.reason}; {reason}", _GFX)
    why = f"AMD's build for ROCm 7.14 has code for {right[0]}; PyTorch's builds do not"
    return _from_amd(plan, torch, f"device-{right[0]}", why)


def _for_amd_without_architecture(
    plan: Plan, torch: str, lacking: str, *notes: str
) -> Plan:
    """Return the plan for Windows and WSL2, where no file contains the GPU's architecture.

    `lacking` is the reason that PyTorch's wheels do not fit.
    """
    if plan.toolkit:
        reason = f"{lacking}, and AMD's wheels include ROCm: omit --toolkit"
        raise _NoBuildError(reason, _ROCM)
    reason = builds.why_not_from_amd(plan.python, torch)
    if reason:
        raise _NoBuildError(f"{lacking}; {reason}", _ROCM)
    targets = [gfx for gfx in builds.AMD_TARGETS if gfx not in builds.AMD_WRONG]
    notes = (
        *plan.notes,
        *notes,
        f"AMD's build has code only for {', '.join(targets)}",
        "If you know the architecture, replace device-all with device-gfxNNNN to download about 2 GB",
    )
    why = f"{lacking}; AMD's build for ROCm 7.14 has code for all of its GPUs (10 GB)"
    return _from_amd(plan, torch, "device-all", why)._replace(notes=notes)


def _from_amd(
    plan: Plan,
    torch: str,
    extra: str,
    why: str,
    index: str = builds.AMD_INDEX,
    source: str = builds.AMD_SOURCE,
) -> Plan:
    """Return the plan with torch from AMD's index, which has only torch and its dependencies."""
    needed = with_extra(requirement(torch), extra)
    part = Part(needed, why, source)
    return with_plugin(plan._replace(torch=needed, torch_index=index, parts=(part,)))


def _for_rocm_10(plan: Plan, torch: str) -> Plan:
    """Return the plan for ROCm 10; raise `_NoBuildError` if AMD has not tested it on the GPUs."""
    gpus = builds.AMD_NEXT_TARGETS
    here = [gfx for gfx in plan.hardware.gfx if gfx in gpus]
    if not here:
        reason = (
            f"AMD's index for ROCm 10 is known to have code only for {', '.join(gpus)}"
        )
        raise _NoBuildError(reason, builds.AMD_NEXT_SOURCE)
    why = f"AMD's build for ROCm 10 has code for {here[0]}"
    index, source = builds.AMD_NEXT_INDEX, builds.AMD_NEXT_SOURCE
    return _from_amd(plan, torch, f"device-{here[0]}", why, index, source)


def _for_rocm(plan: Plan, torch: str) -> Plan:
    """Return the plan for the requested ROCm; raise `_NoBuildError` if it lacks code for the GPUs."""
    build = builds.for_toolkit("rocm", plan.toolkit, torch)
    if not build.name and plan.toolkit.partition(".")[0] == "10":
        return _for_rocm_10(plan, torch)
    if not build.name:
        raise _no_build(plan, "ROCm", builds.toolkits("rocm"), torch)
    gpus = builds.gpus_of(build.name)
    here = [gfx for gfx in plan.hardware.gfx if gfx in gpus]
    if plan.hardware.gfx and not here:
        missing = ", ".join(plan.hardware.gfx)
        reason = f"PyTorch's build {build.name} has no code for {missing}"
        raise _NoBuildError(reason, _GFX)
    why = _why_toolkit(plan, build, "ROCm")
    if here:
        why += f", and has code for {here[0]}"
    plan = with_plugin(_with_build(plan, torch, build, why))
    if not here:
        note = f"PyTorch's build {build.name} has code only for {', '.join(gpus)}"
        plan = plan._replace(notes=(*plan.notes, note))
    return plan


#: The function that completes the plan, by target.
_PLANS: dict[str, Callable[[Plan, Machine, str], Plan]] = {
    "NVIDIA GPU": _for_nvidia,
    "AMD GPU": _for_amd,
    "Intel discrete GPU": _for_intel,
    "Intel integrated GPU": _for_intel,
    "Apple GPU": _for_apple,
    "CPU": _for_cpu,
}
