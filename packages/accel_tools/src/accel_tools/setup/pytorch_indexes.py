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
from accel_tools.setup.installed import VENDOR_BUILDS, describe_build_mismatch
from accel_tools.setup.machines import Machine
from accel_tools.setup.plan import (
    Part,
    Plan,
    UvChoice,
    add_plugin,
    torch_requirement,
    with_extra,
)

__all__ = ["PYTORCH", "add_pytorch_build"]

_JETSON = "https://forums.developer.nvidia.com/t/pytorch-for-jetson/72048"
_ROCM = "https://rocm.docs.amd.com/"
_GFX = "https://rocm.docs.amd.com/projects/install-on-linux/en/latest/"
_NVIDIA_DRIVER = "https://www.nvidia.com/Download/index.aspx"
PYTORCH = "https://pytorch.org/get-started/locally/"
_XPU = "https://pytorch.org/docs/stable/notes/get_start_xpu.html"
_CPU_NOTE = "To install torch for the CPU only: accel setup cpu"
#: The next step if the hardware is on a different machine.
_NOTE_FOR_DIFFERENT_MACHINE = {
    "NVIDIA GPU": "If the GPU is on a different machine, give the version of the driver, which nvidia-smi "
    "shows there: accel setup cuda --driver VERSION",
    "AMD GPU": "If the GPU is on a different machine, give the version of ROCm, which is in "
    "/opt/rocm/.info/version there: accel setup rocm --toolkit VERSION",
}
#: The last driver version for GPUs from Maxwell to Volta:
#: https://github.com/NixOS/nixos-hardware/issues/1880
_LAST_DRIVER_WITH_VOLTA = 580


class _NoBuildError(Exception):
    """An error that states that no build of torch fits.

    The plan gets the error's `reason`, `url` and `notes`.
    """

    def __init__(self, reason: str, url: str, *notes: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.url = url
        self.notes = notes


def add_pytorch_build(plan: Plan, machine: Machine, torch: str) -> Plan:
    """Return the plan with PyTorch's build of torch for the plan's target.

    `torch` is the required release, or an empty string for the newest. If no build fits, the plan contains
    the reason in `why_no_command`.
    """
    try:
        return _add_build(plan, machine, torch)
    except _NoBuildError as error:
        notes = (*plan.notes, *error.notes)
        return plan._replace(why_no_command=error.reason, url=error.url, notes=notes)


def _add_build(plan: Plan, machine: Machine, torch: str) -> Plan:
    """Return the plan with the build for its target.

    Raises `_NoBuildError` if no build fits.
    """
    if plan.target == "NVIDIA GPU" and "Jetson" in plan.machine_kind:
        return _add_build_for_jetson(plan, torch)
    is_macos_13 = plan.machine_kind.startswith("macOS 13.")
    if plan.target == "Apple GPU" and is_macos_13 and not torch:
        torch = builds.LAST_ON_MACOS_13
    _require_wheels(plan, machine, torch)
    if plan.target in VENDOR_BUILDS:  # The vendor builds torch itself.
        reason = _vendor_build_note(plan.target)
        raise _NoBuildError(reason, VENDOR_BUILDS[plan.target].url)
    add_build_for_target = _FUNCTION_BY_TARGET.get(plan.target)
    if add_build_for_target is None:
        raise _NoBuildError(f"no table lists the packages for {plan.target}", PYTORCH)
    return add_build_for_target(plan, machine, torch)


def _require_wheels(plan: Plan, machine: Machine, torch: str) -> None:
    """Raise `_NoBuildError` if torch has no wheels for the machine's system or Python."""
    reason = builds.why_no_wheels_for_platform(
        machine.system, machine.architecture, plan.target
    )
    if not reason:
        reason = builds.why_no_wheels_for_python(machine.python, torch)
    if reason:
        raise _NoBuildError(reason, PYTORCH)


def _vendor_build_note(label: str) -> str:
    """Return why there is no plan for hardware, such as `"MetaX GPU"`, whose vendor builds torch itself."""
    vendor = VENDOR_BUILDS[label].vendor
    device = VENDOR_BUILDS[label].device
    build = torch_build()
    if build is None or describe_build_mismatch(build, label, evidence=""):
        return (
            f"accel-cuda needs the build of torch that {vendor} makes for its {device}s"
        )
    return (
        f"torch {build.version}, the driver and the SDK must be from the same release "
        f"by {vendor}. Next step: compare the three versions"
    )


# --- The CPU, Apple, Intel -----------------------------------------------------------


def _add_cpu_build(plan: Plan, machine: Machine, torch: str) -> Plan:
    """Return the plan with PyTorch's build for the CPU."""
    if machine.system == "linux":
        why = "PyTorch's CPU build, because PyPI's build would install gigabytes of CUDA libraries"
        return _with_build(plan, torch, Build(builds.CPU, PYTORCH), why)
    requirement = torch_requirement(torch)
    part = Part(requirement, "PyPI's build is for the CPU", PYTORCH)
    return plan._replace(torch=requirement, parts=(part,))


def _with_build(plan: Plan, torch: str, build: Build, why: str) -> Plan:
    """Return the plan with a build of PyTorch.

    `torch` is the required release, or an empty string for the newest. `why` is the reason for the build,
    which the table of the plan shows. Raises `_NoBuildError` if the build does not fit Python.
    """
    # Without a required release, pip installs the last release that has the build.
    release = torch or builds.LAST_RELEASE.get(build.name, "")
    reason = builds.why_no_wheels_for_python(plan.python, release)
    if reason:
        raise _NoBuildError(reason, PYTORCH)
    requirement = torch_requirement(torch)
    part = Part(requirement, why, build.source)
    return plan._replace(torch=requirement, torch_backend=build.name, parts=(part,))


def _add_apple_build(plan: Plan, _machine: Machine, torch: str) -> Plan:
    """Return the plan with PyPI's build for macOS.

    Raises `_NoBuildError` if macOS is too old.
    """
    requirement = torch_requirement(torch)
    macos = plan.machine_kind.removeprefix("macOS ")
    oldest_macos = "14"
    if torch and Version(torch) <= Version(builds.LAST_ON_MACOS_13):
        oldest_macos = "13"
    if macos and Version(macos) < Version(oldest_macos):
        reason = (
            f"{requirement} needs macOS {oldest_macos} for Apple's GPU, "
            f"but this is macOS {macos}"
        )
        raise _NoBuildError(reason, PYTORCH, _CPU_NOTE)
    why = "PyPI's build for macOS supports Metal"
    if macos and Version(macos) < Version("14"):
        why = f"the last release that supports Metal on macOS {macos}"
    part = Part(requirement, why, PYTORCH)
    return add_plugin(plan._replace(torch=requirement, parts=(part,)))


def _add_intel_build(plan: Plan, _machine: Machine, torch: str) -> Plan:
    """Return the plan with the XPU build.

    Raises `_NoBuildError` if PyTorch may not support the GPUs.
    """
    limitation = plan.hardware.intel_limitation
    if limitation:
        reason = (
            "PyTorch supports Intel GPUs only since Arc and Core Ultra, "
            f"but the GPUs of this machine are {limitation}"
        )
        notes = [_CPU_NOTE]
        if limitation == UNNAMED:
            notes.insert(0, "If the GPU is an Arc or Core Ultra: accel setup xpu")
        raise _NoBuildError(reason, _XPU, *notes)
    build = Build("xpu", f"{builds.INDEX}/xpu")
    why = "PyTorch's build for Intel GPUs, which includes the runtime"
    return add_plugin(_with_build(plan, torch, build, why))


# --- NVIDIA --------------------------------------------------------------------------


def _add_build_for_jetson(plan: Plan, torch: str) -> Plan:
    """Return the plan for an NVIDIA Jetson.

    PyTorch has wheels only for the Jetson Thor, since torch 2.9. Raises `_NoBuildError` for other models and
    older releases.
    """
    is_thor = "Thor" in plan.machine_kind
    is_old_release = torch and Version(torch) < Version("2.9")
    if not is_thor or is_old_release:
        reason = (
            f"this is {bus.with_article(plan.machine_kind)}, which needs NVIDIA's wheels for its JetPack "
            "version instead of PyTorch's wheels"
        )
        raise _NoBuildError(reason, _JETSON)
    reason = builds.why_no_wheels_for_python(plan.python, torch)
    if reason:
        raise _NoBuildError(reason, PYTORCH)
    build = Build(builds.THOR, builds.THOR_SOURCE)
    why = f"PyTorch's build {builds.THOR} has code for the GPU of this {plan.machine_kind}"
    return add_plugin(_with_build(plan, torch, build, why))


class _FittingBuild(NamedTuple):
    """The newest CUDA build that fits the NVIDIA driver or the requested CUDA version."""

    build: Build
    #: Why the build fits, for the plan's table.
    why: str
    #: Why a newer build does not fit. A message that this build cannot be used begins with this clause.
    why_not_newer: str


def _add_nvidia_build(plan: Plan, machine: Machine, torch: str) -> Plan:
    """Return the plan with the newest CUDA build for the driver, or for the requested CUDA version.

    Raises `_NoBuildError` if no build fits.
    """
    _require_gpu_code(plan, machine)
    if plan.toolkit:
        fitting = _find_build_for_cuda(plan, machine, torch)
    elif plan.driver:
        fitting = _find_build_for_driver(plan, machine, torch)
    else:
        raise _no_driver_error(plan, machine)
    _require_wheels_of_build(fitting, machine, torch)
    is_volta = plan.hardware.nvidia_generation == VOLTA
    if is_volta and builds.lacks_code_for_volta(fitting.build.name):
        return _add_build_for_volta(plan, torch)
    if not torch and _uv_finds_driver(plan, machine):
        plan = plan._replace(uv_choice=UvChoice(f"NVIDIA driver {plan.driver}"))
    return add_plugin(_with_build(plan, torch, fitting.build, fitting.why))


def _require_gpu_code(plan: Plan, machine: Machine) -> None:
    """Raise `_NoBuildError` if no wheel has code for the machine's NVIDIA GPUs."""
    generation = plan.hardware.nvidia_generation
    on_arm = machine.architecture == "aarch64"
    # The wheels for aarch64 have code for sm_80 and newer:
    # https://github.com/pytorch/pytorch/pull/163764
    if generation == KEPLER or (on_arm and generation):
        wheels = "wheels for aarch64" if on_arm else "wheels"
        reason = (
            f"PyTorch has no {wheels} with code for the GPUs of this machine, "
            f"which are from {generation}"
        )
        raise _NoBuildError(reason, PYTORCH)


def _find_build_for_cuda(plan: Plan, machine: Machine, torch: str) -> _FittingBuild:
    """Return the newest build for the requested CUDA version.

    Raises `_NoBuildError` if there is no such build, or if the driver is too old for the build.
    """
    build = builds.newest_build_for_toolkit("cu", plan.toolkit, torch, machine.system)
    if not build.name:
        raise _no_build_error(plan, "CUDA", builds.toolkit_versions("cu"), torch)
    why = _why_build_fits_toolkit(plan, build, "CUDA")
    if plan.driver:
        if not builds.driver_can_run(plan.driver, build.name, machine.system):
            reason = f"NVIDIA driver {plan.driver} is too old for PyTorch's build {build.name}"
            raise _NoBuildError(reason, _NVIDIA_DRIVER)
        why += f", and runs on NVIDIA driver {plan.driver}"
    why_not_newer = f"PyTorch's build for CUDA {plan.toolkit} is {build.name}"
    return _FittingBuild(build, why, why_not_newer)


def _find_build_for_driver(plan: Plan, machine: Machine, torch: str) -> _FittingBuild:
    """Return the newest build that NVIDIA's driver can run.

    Raises `_NoBuildError` if no build fits.
    """
    driver = plan.driver
    build = builds.newest_build_for_driver(driver, torch, machine.system)
    if not build.name:
        release = f"torch {torch}" if torch else "torch"
        reason = f"no build of {release} runs on NVIDIA driver {driver}"
        raise _NoBuildError(reason, _NVIDIA_DRIVER)
    if builds.is_retired(build.name):
        oldest = builds.oldest_supported_driver(machine.system)
        reason = (
            f"torch 2.6 and newer have no build for NVIDIA driver {driver}, "
            f"only for driver {oldest} and newer"
        )
        raise _NoBuildError(reason, _NVIDIA_DRIVER)
    why = f"PyTorch's build {build.name} runs on NVIDIA driver {driver}"
    why_not_newer = f"PyTorch's build {build.name} is the newest that NVIDIA driver {driver} can run"
    return _FittingBuild(build, why, why_not_newer)


def _require_wheels_of_build(
    fitting: _FittingBuild, machine: Machine, torch: str
) -> None:
    """Raise `_NoBuildError` if a build has no wheels for the machine's CPU architecture or Python.

    Builds that the newest release has are not checked here.
    """
    name = fitting.build.name
    last_release = builds.LAST_RELEASE.get(name)
    if last_release is None:  # The newest torch has this build, for all systems.
        return
    if machine.architecture == "aarch64" and builds.is_before_first_arm_build(name):
        reason = "this build has no wheels for aarch64"
    else:
        reason = builds.why_no_wheels_for_python(machine.python, torch or last_release)
    if reason:
        raise _NoBuildError(f"{fitting.why_not_newer}: {reason}", _NVIDIA_DRIVER)


def _add_build_for_volta(plan: Plan, torch: str) -> Plan:
    """Return the plan with the newest CUDA build that has code for GPUs from Maxwell to Volta."""
    if not builds.has_build(torch, builds.LAST_WITH_VOLTA):
        reason = f"torch {torch} has no build with code for the GPUs of this machine, which are from {VOLTA}"
        raise _NoBuildError(reason, PYTORCH)
    build = Build(builds.LAST_WITH_VOLTA, builds.VOLTA_SOURCE)
    why = f"newer builds have no code for the GPUs of this machine, which are from {VOLTA}"
    if plan.driver:
        why += f" (NVIDIA driver {plan.driver})"
    return add_plugin(_with_build(plan, torch, build, why))


def _uv_finds_driver(plan: Plan, machine: Machine) -> bool:
    """Return whether uv would detect the NVIDIA driver version that the plan is for.

    If no file contains the version, uv needs `nvidia-smi` on `PATH`. Without it, uv chooses the CPU build.
    """
    is_detected_driver = plan.driver == plan.hardware.nvidia_driver
    # `nvidia_smi` is empty if a file contains the driver's version.
    is_in_file = not machine.nvidia_smi
    return is_detected_driver and is_in_file and not plan.toolkit


def _no_driver_error(plan: Plan, machine: Machine) -> _NoBuildError:
    """Return the error for a machine on which no NVIDIA driver version was detected."""
    in_wsl = plan.machine_kind == "WSL2"
    if machine.system == "linux" and not in_wsl:
        reason = (
            "NVIDIA's driver is not loaded, but its version determines which build fits"
        )
        if plan.hardware.nvidia_generation == VOLTA:
            reason += (
                f". Driver {_LAST_DRIVER_WITH_VOLTA} is the last driver for the GPUs of this "
                f"machine, which are from {VOLTA}"
            )
    else:
        where = "in WSL2" if in_wsl else "on this machine"
        reason = (
            f"no file {where} contains the version of NVIDIA's driver, and nvidia-smi "
            "does not report it"
        )
    return _NoBuildError(
        reason, _NVIDIA_DRIVER, _NOTE_FOR_DIFFERENT_MACHINE[plan.target]
    )


def _no_build_error(
    plan: Plan, toolkit: str, versions: str, torch: str
) -> _NoBuildError:
    """Return the error for a CUDA or ROCm version for which there is no build.

    `toolkit` is `"CUDA"` or `"ROCm"`, and `versions` lists its versions with a build.
    """
    release = f"torch {torch}" if torch else "torch since 2.6"
    reason = (
        f"{release} has no build for {toolkit} {plan.toolkit}. "
        f"PyTorch has builds for {toolkit} {versions}"
    )
    return _NoBuildError(reason, builds.RELEASES_SOURCE)


def _why_build_fits_toolkit(plan: Plan, build: Build, toolkit: str) -> str:
    """Return the reason for a build that was chosen for the requested version of CUDA or ROCm."""
    return f"PyTorch's build {build.name} is the newest for {toolkit} {plan.toolkit}"


# --- AMD -----------------------------------------------------------------------------


def _add_amd_build(plan: Plan, machine: Machine, torch: str) -> Plan:
    """Return the plan with PyTorch's ROCm build, or with AMD's wheels if PyTorch has no wheels.

    Raises `_NoBuildError` if no wheels fit.
    """
    if machine.system == "win32":
        why_no_pytorch_wheels = "PyTorch has no ROCm wheels for Windows"
        return _add_amd_wheels_for_all_gpus(plan, torch, why_no_pytorch_wheels)
    if plan.machine_kind == "WSL2":
        why_no_pytorch_wheels = (
            "PyTorch's ROCm wheels need the kernel driver amdgpu, which WSL2 lacks"
        )
        note = (
            "AMD supports WSL2 on Windows 11 for some Radeon and Ryzen GPUs. AMD's build also needs "
            f"AMD's driver for Windows, and librocdxg in the Linux distribution: {builds.AMD_WSL}"
        )
        return _add_amd_wheels_for_all_gpus(plan, torch, why_no_pytorch_wheels, note)
    if plan.toolkit:
        return _add_build_for_rocm(plan, torch)
    if not plan.hardware.amd_architectures:
        reason = (
            "the driver amdgpu does not report the GPU architecture (/sys/class/kfd), which "
            "determines the build"
        )
        raise _NoBuildError(reason, _GFX, _NOTE_FOR_DIFFERENT_MACHINE[plan.target])
    return _add_build_for_amd_architectures(plan, torch)


def _add_build_for_amd_architectures(plan: Plan, torch: str) -> Plan:
    """Return the plan with the newest ROCm build for the first GPU architecture that PyTorch supports.

    Without a supported architecture, the plan has AMD's wheels. Raises `_NoBuildError` if these do not fit
    either.
    """
    build_by_architecture: dict[str, Build] = {}
    for architecture in plan.hardware.amd_architectures:
        build = builds.newest_build_for_amd_gpu(architecture, torch)
        build_by_architecture[architecture] = build
    supported, unsupported = [], []
    for architecture, build in build_by_architecture.items():
        if build.name:
            supported.append(architecture)
        else:
            unsupported.append(architecture)
    if not supported:
        first_build = build_by_architecture[unsupported[0]]
        error = _no_wheels_error(unsupported, torch, first_build.source)
        return _add_amd_wheels_for_linux(plan, torch, error)
    architecture = supported[0]
    build = build_by_architecture[architecture]
    # For Vega, uv chooses a newer build, which has no code for Vega.
    if not torch and not builds.is_vega(architecture):
        # uv would run rocm_agent_enumerator of ROCm, which a machine with only the driver lacks.
        variables = (f"UV_AMD_GPU_ARCHITECTURE={architecture}",)
        uv_choice = UvChoice(f"the AMD GPU architecture {architecture}", variables)
        plan = plan._replace(uv_choice=uv_choice)
    why = f"PyTorch's build {build.name} has code for {architecture}"
    plan = add_plugin(_with_build(plan, torch, build, why))
    if unsupported:
        note = f"PyTorch has no wheels for {', '.join(unsupported)}, which this machine also has"
        plan = plan._replace(notes=(*plan.notes, note))
    return plan


def _no_wheels_error(
    architectures: Sequence[str], torch: str, source: str
) -> _NoBuildError:
    """Return the error for AMD GPU architectures for which PyTorch has no wheels."""
    release = f" of torch {torch}" if torch else ""
    reason = f"PyTorch has no wheels{release} for {', '.join(architectures)}, according to {source}"
    return _NoBuildError(reason, _GFX)


def _add_amd_wheels_for_linux(
    plan: Plan, torch: str, pytorch_error: _NoBuildError
) -> Plan:
    """Return the plan with AMD's wheels for GPUs for which PyTorch has no wheels.

    `pytorch_error` states that PyTorch has no wheels. Raises `_NoBuildError` with the reason of
    `pytorch_error` if AMD's wheels do not fit either.
    """
    architectures = plan.hardware.amd_architectures
    with_code = [gfx for gfx in architectures if gfx in builds.AMD_TARGETS]
    working = [gfx for gfx in with_code if gfx not in builds.AMD_WRONG]
    if not with_code:
        raise pytorch_error
    if not working:
        problem = "AMD's wheels are reported to compute wrong results"
        reason = f"{pytorch_error.reason}; {problem}"
        report_url = builds.AMD_WRONG[with_code[0]]
        raise _NoBuildError(reason, report_url)
    problem = builds.why_amd_wheels_do_not_fit(plan.python, torch)
    if problem:
        raise _NoBuildError(f"{pytorch_error.reason}; {problem}", _GFX)
    architecture = working[0]
    why = f"AMD's build for ROCm 7.14 has code for {architecture}, but PyTorch's builds do not"
    return _with_amd_wheels(plan, torch, f"device-{architecture}", why)


def _add_amd_wheels_for_all_gpus(
    plan: Plan, torch: str, why_no_pytorch_wheels: str, *notes: str
) -> Plan:
    """Return the plan with AMD's wheels for all AMD GPUs.

    All are needed because no file of Windows or WSL2 contains the GPU's architecture. `why_no_pytorch_wheels`
    is the reason why PyTorch's wheels do not fit.
    """
    if plan.toolkit:
        reason = f"{why_no_pytorch_wheels}. AMD's wheels include ROCm. Next step: omit --toolkit"
        raise _NoBuildError(reason, _ROCM)
    problem = builds.why_amd_wheels_do_not_fit(plan.python, torch)
    if problem:
        raise _NoBuildError(f"{why_no_pytorch_wheels}; {problem}", _ROCM)
    targets = [gfx for gfx in builds.AMD_TARGETS if gfx not in builds.AMD_WRONG]
    notes = (
        *plan.notes,
        *notes,
        f"AMD's build has code only for {', '.join(targets)}",
        "If you know the architecture, replace device-all with device-gfxNNNN to download only about 2 GB",
    )
    why = f"{why_no_pytorch_wheels}. AMD's build for ROCm 7.14 (10 GB) has code for many AMD GPUs"
    return _with_amd_wheels(plan, torch, "device-all", why)._replace(notes=notes)


def _with_amd_wheels(
    plan: Plan,
    torch: str,
    extra: str,
    why: str,
    index: str = builds.AMD_INDEX,
    source: str = builds.AMD_SOURCE,
) -> Plan:
    """Return the plan with torch from AMD's index, which has only torch and its dependencies.

    `extra` is the extra of torch with the code for the GPU, such as `"device-gfx1103"`.
    """
    requirement = with_extra(torch_requirement(torch), extra)
    part = Part(requirement, why, source)
    return add_plugin(
        plan._replace(torch=requirement, torch_index=index, parts=(part,))
    )


def _add_wheels_for_rocm_10(plan: Plan, torch: str) -> Plan:
    """Return the plan with AMD's wheels for ROCm 10.

    Raises `_NoBuildError` if AMD has not tested these wheels on the machine's GPUs.
    """
    tested = builds.AMD_NEXT_TARGETS
    for architecture in plan.hardware.amd_architectures:
        if architecture in tested:
            why = f"AMD's build for ROCm 10 has code for {architecture}"
            return _with_amd_wheels(
                plan,
                torch,
                f"device-{architecture}",
                why,
                index=builds.AMD_NEXT_INDEX,
                source=builds.AMD_NEXT_SOURCE,
            )
    reason = (
        f"AMD's index for ROCm 10 is known to have code only for {', '.join(tested)}"
    )
    raise _NoBuildError(reason, builds.AMD_NEXT_SOURCE)


def _add_build_for_rocm(plan: Plan, torch: str) -> Plan:
    """Return the plan with the newest build for the requested version of ROCm.

    Raises `_NoBuildError` if there is no such build, or if the build lacks code for the machine's GPUs.
    """
    build = builds.newest_build_for_toolkit("rocm", plan.toolkit, torch)
    major_version, _, _ = plan.toolkit.partition(".")
    if not build.name and major_version == "10":
        return _add_wheels_for_rocm_10(plan, torch)
    if not build.name:
        raise _no_build_error(plan, "ROCm", builds.toolkit_versions("rocm"), torch)
    supported = builds.amd_architectures_of(build.name)
    usable = [gfx for gfx in plan.hardware.amd_architectures if gfx in supported]
    if plan.hardware.amd_architectures and not usable:
        missing = ", ".join(plan.hardware.amd_architectures)
        reason = f"PyTorch's build {build.name} has no code for {missing}"
        raise _NoBuildError(reason, _GFX)
    why = _why_build_fits_toolkit(plan, build, "ROCm")
    if usable:
        why += f", and has code for {usable[0]}"
    plan = add_plugin(_with_build(plan, torch, build, why))
    if not usable:
        note = f"PyTorch's build {build.name} has code only for {', '.join(supported)}"
        plan = plan._replace(notes=(*plan.notes, note))
    return plan


#: The function that adds the build of torch to a plan, by the plan's target.
_FUNCTION_BY_TARGET: dict[str, Callable[[Plan, Machine, str], Plan]] = {
    "NVIDIA GPU": _add_nvidia_build,
    "AMD GPU": _add_amd_build,
    "Intel discrete GPU": _add_intel_build,
    "Intel integrated GPU": _add_intel_build,
    "Apple GPU": _add_apple_build,
    "CPU": _add_cpu_build,
}
