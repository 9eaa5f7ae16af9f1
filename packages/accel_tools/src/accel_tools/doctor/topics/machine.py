"""Examine the machine: torch's build, hardware, drivers, container, memory and cores.

The facts are read from files. If there is an NVIDIA GPU and torch is built for CUDA, a child
process imports torch to check that torch has code for the GPU.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from accel_core import TorchBuild, __version__, hardware, packages, torch_build
from accel_core.hardware import bus, placement, vendors
from accel_core.plugins import installed_names
from accel_core.settings import OWN_DISTRIBUTIONS
from accel_tools.doctor.child_functions import gpu_architectures
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.machine import cpu_name, driver_of
from accel_tools.setup import installed
from accel_tools.setup.machines import driver_version

__all__ = ["TOPIC", "findings", "has_no_code"]

#: The folder in which NVIDIA's forward compatibility package installs a newer libcuda.so.1:
#: https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
_FORWARD_COMPATIBILITY = "/usr/local/cuda/compat"
_NVIDIA = "NVIDIA GPU"

#: The longest time in seconds that the build of an extension is expected to take.
_LONGEST_BUILD = 3600.0

_MIB, _GIB = 1 << 20, 1 << 30
#: The amount of free memory in the control group below which importing torch and a vendor's
#: package may kill the process without a message.
_LITTLE_MEMORY = 512 * _MIB
#: The size of /dev/shm in a Docker container that was started without --shm-size:
#: https://docs.docker.com/reference/cli/docker/container/run/
_DOCKER_SHARED_MEMORY = 64 * _MIB

_Vendors = Sequence[vendors.Vendor]


def findings(context: DiagnosticContext, root: str = "/") -> Iterator[Finding]:
    """Yield findings on the machine whose `/sys`, `/proc` and `/dev` are below `root`."""
    build = torch_build()
    present = vendors.known_hardware(root)
    yield _hardware(present, root, context)
    if build is not None:  # The topic `candidates` reports that torch is missing.
        yield from _torch_build(build, present, context, root)
        if build.cuda and _nvidia_evidence(present) is not None:
            yield from _nvidia_driver(build, context, root)
            yield from _gpu_code(build, present, context)
    yield from _missing_plugins()
    yield from _other_releases()
    yield from _container(present, context, root)
    yield from _memory(root)
    yield from _shared_memory(present, root)
    yield from _stale_locks(context)


# --- Hardware ------------------------------------------------------------------------


def _hardware(present: _Vendors, root: str, context: DiagnosticContext) -> Finding:
    """Return the finding on the hardware, and on the cores and memory that this process may use."""
    labels = list(dict.fromkeys(vendor.label for vendor in present))
    what = f"{', '.join(labels) or 'No accelerator'} on this machine"
    facts = {
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "Python": platform.python_version(),
        "CPU": cpu_name(root),
        "cores": f"{hardware.usable_cores()} usable of {os.cpu_count() or 1}",
        **dict(_control_group_facts(root)),
        "runs in": _place(root, context),
        **dict(_device_facts(present, root)),
    }
    facts = {name: value for name, value in facts.items() if value}
    return Finding(Level.OK, "machine.seen", what, facts=facts)


def _control_group_facts(root: str) -> Iterator[tuple[str, str]]:
    quota = hardware.cgroup_cpu_quota(root)
    if quota is not None:
        yield "time of cores, by the control group", f"{quota:g}"
    limit = hardware.cgroup_memory_limit(root)
    if limit is not None:
        left = hardware.cgroup_memory_available(root) or 0
        value = f"{_size(limit)}, of which {_size(left)} are free"
        yield "memory, by the control group", value


def _place(root: str, context: DiagnosticContext) -> str:
    """Return the container and the Slurm job in which this process runs; empty if neither applies."""
    place = placement.placement(root, context.environ)
    parts = []
    if place.container:
        parts.append(place.name.removeprefix("this "))
    if place.slurm_job:
        parts.append(f"Slurm job {place.slurm_job}")
    return ", ".join(parts)


def _device_facts(present: _Vendors, root: str) -> Iterator[tuple[str, str]]:
    """Yield the evidence of each vendor, and the driver of each PCI device."""
    for vendor in present:
        yield vendor.label, str(vendor.evidence)
    for device in bus.pci_devices(root):
        if any(str(device) in vendor.evidence.pci for vendor in present):
            yield f"driver of {device.address}", driver_of(device.address, root)


def _size(amount: int) -> str:
    """Return an amount of bytes as text, such as `"1.5 GiB"` or `"64 MiB"`."""
    if amount >= _GIB:
        return f"{amount / _GIB:.1f} GiB"
    return f"{amount / _MIB:.0f} MiB"


# --- torch's build -------------------------------------------------------------------


def _torch_build(
    build: TorchBuild, present: _Vendors, context: DiagnosticContext, root: str
) -> Iterator[Finding]:
    """Yield a finding on hardware that torch's build cannot use, or that the build fits all hardware."""
    is_cpu_build = not (build.cuda or build.hip or build.xpu)
    code = "machine.cpu-build" if is_cpu_build else "machine.other-build"
    fits = True
    for vendor in present:
        driver = driver_version(root) if vendor.label == _NVIDIA else ""
        evidence = str(vendor.evidence)
        what = installed.describe_build_mismatch(build, vendor.label, evidence, driver)
        if what:
            fits = False
            level = _severity(context, vendor.backend)
            yield Finding(level, code, what, _fitting_build(vendor), vendor.backend)
    if fits:
        yield Finding(Level.OK, "machine.torch", f"{build} fits the hardware")


def _fitting_build(vendor: vendors.Vendor) -> str:
    """Return the step that installs a build of torch for the vendor's hardware."""
    if vendor.label in installed.VENDOR_BUILDS:
        url = installed.VENDOR_BUILDS[vendor.label].url
        return f"install torch from {vendor.label.partition(' ')[0]}: {url}"
    name = "rocm" if vendor.label == "AMD GPU" else vendor.backend
    return f"accel setup {name}"


def _severity(context: DiagnosticContext, backend: str) -> Level:
    """Return the level of a problem with present hardware: a warning if settings exclude the backend."""
    settings = context.settings
    pinned = [pin.name.partition(".")[0] for pin in settings.pins]
    blocked = [pin.name.partition(".")[0] for pin in settings.block]
    is_excluded = backend in blocked or (pinned != [] and backend not in pinned)
    return Level.WARNING if is_excluded else Level.ERROR


# --- NVIDIA's driver and GPUs --------------------------------------------------------


def _nvidia_evidence(present: _Vendors) -> bus.Evidence | None:
    """Return the evidence of NVIDIA GPUs, or `None` if the machine has no NVIDIA GPU."""
    for vendor in present:
        if vendor.label == _NVIDIA:
            return vendor.evidence
    return None


def _nvidia_driver(
    build: TorchBuild, context: DiagnosticContext, root: str
) -> Iterator[Finding]:
    """Yield the finding whether NVIDIA's driver is new enough for torch's CUDA."""
    version = driver_version(root)
    if not version:
        return
    facts = {"driver": version, "torch": str(build)}
    too_old = installed.describe_driver_mismatch(build, version)
    if not too_old:
        what = f"NVIDIA's driver {version} is new enough for CUDA {build.cuda}"
        yield Finding(Level.OK, "machine.driver", what, about="cuda", facts=facts)
        return
    # The problem may have no effect: a newer libcuda may replace the driver's libcuda, and CUDA 13 can
    # run code for CUDA 12.
    has_newer_libcuda = hardware.path_exists(_FORWARD_COMPATIBILITY, root)
    level = _severity(context, "cuda")
    if has_newer_libcuda or _is_usable("cuda", context):
        level = Level.WARNING
    code, step = "machine.driver-too-old", "accel setup cuda"
    yield Finding(level, code, too_old, step, "cuda", facts)


def _is_usable(backend: str, context: DiagnosticContext) -> bool:
    """Return whether the backend's probe has succeeded."""
    verdicts = context.survey().verdicts
    return any(verdict.usable and verdict.name == backend for verdict in verdicts)


def _gpu_code(
    build: TorchBuild, present: _Vendors, context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield a finding for each GPU whether torch has code for the GPU."""
    evidence = _nvidia_evidence(present)
    if evidence is None or not evidence.nodes:
        return
    answer = _gpu_architectures(context)
    if answer is None:  # The verdict on the backend contains the reason.
        return
    architectures: list[str] = answer["torch"]
    for name, major, minor in answer["gpus"]:
        facts = {
            "GPU": name,
            "compute capability": f"{major}.{minor}",
            "torch has code for": " ".join(architectures),
        }
        if has_no_code((major, minor), architectures):
            what = (
                f"{build} has no code for {name} (compute capability {major}.{minor})"
            )
            step = "install a different build: https://pytorch.org/get-started/locally/"
            code = "machine.no-code"
            yield Finding(Level.ERROR, code, what, step, "cuda", facts)
        else:
            what = f"torch has code for {name}"
            yield Finding(Level.OK, "machine.code", what, about="cuda", facts=facts)


def _gpu_architectures(context: DiagnosticContext) -> dict[str, Any] | None:
    """Return torch's architectures and the GPUs, or `None` if the child process fails."""
    from accel_core.sandbox import child

    try:
        report = child.run(gpu_architectures, {}, context.settings.probe_timeout)
    except OSError:
        return None
    return report.answer


def has_no_code(capability: tuple[int, int], architectures: Iterable[str]) -> bool:
    """Return whether torch has no code that runs on a GPU with the given compute capability.

    Machine code such as `sm_86` runs on GPUs with the same major version and the same or a
    higher minor version. `sm_90a` runs only on GPUs with exactly this version, and `sm_100f` on
    GPUs of the same family. Intermediate code such as `compute_90` is compiled for newer GPUs:
    https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/, "GPU Compilation".

    Returns False if `architectures` has no CUDA architecture.
    """
    pattern = re.compile(r"(sm|compute)_[0-9]+[0-9][af]?")
    names = [name for name in architectures if pattern.fullmatch(name)]
    return bool(names) and not any(_runs_on(name, *capability) for name in names)


def _runs_on(architecture: str, major: int, minor: int) -> bool:
    kind, _, number = architecture.partition("_")
    of_major, of_minor = divmod(int(number.rstrip("af")), 10)
    if number.endswith("a"):
        return (of_major, of_minor) == (major, minor)
    if kind == "compute" and not number.endswith("f"):
        return (of_major, of_minor) <= (major, minor)
    return of_major == major and of_minor <= minor


# --- Distributions -------------------------------------------------------------------


def _missing_plugins() -> Iterator[Finding]:
    """Yield a finding on each accelerator whose plugin is not installed.

    The names of entry points are the names of backends, so no plugin is imported.
    """
    for vendor in vendors.hardware_without_plugin(installed_names()):
        step = vendors.install_command(vendor.distribution)
        what = vendor.missing_plugin_clause()
        yield Finding(Level.WARNING, "machine.no-plugin", what, step, vendor.backend)


def _other_releases() -> Iterator[Finding]:
    """Yield a finding on each of accel's distributions whose version differs from that of accel-core."""
    for name in sorted(OWN_DISTRIBUTIONS):
        version = packages.version(name)
        if version and version != __version__:
            what = (
                f"{name} {version} is installed with accel-core {__version__}, but both "
                "must have the same version"
            )
            step = vendors.install_command(
                name, version=__version__, option="--upgrade"
            )
            yield Finding(Level.WARNING, "machine.other-release", what, step)


# --- Containers, memory, locks -------------------------------------------------------


def _container(
    present: _Vendors, context: DiagnosticContext, root: str
) -> Iterator[Finding]:
    """Yield a finding on each accelerator of the host whose device nodes the container lacks."""
    place = placement.placement(root, context.environ)
    if not place.container:
        return
    with_nodes = {vendor.label for vendor in vendors.VENDORS if vendor.nodes}
    for vendor in present:
        is_on_bus = vendor.evidence.pci and not vendor.evidence.nodes
        if vendor.label in with_nodes and is_on_bus:
            what = (
                f"the host has the {vendor.label} ({vendor.evidence}), "
                f"but {place.name} lacks its device node"
            )
            step = (
                "start the container with the devices; `accel why "
                f"{vendor.backend}` shows how, with {vendor.distribution} installed"
            )
            level = _severity(context, vendor.backend)
            yield Finding(level, "machine.no-nodes", what, step, vendor.backend)


def _memory(root: str) -> Iterator[Finding]:
    left = hardware.cgroup_memory_available(root)
    if left is not None and left < _LITTLE_MEMORY:
        limit = hardware.cgroup_memory_limit(root) or 0
        what = (
            f"only {_size(left)} of the control group's {_size(limit)} of memory are free: "
            "above the limit, processes are killed"
        )
        step = "give the container or job more memory"
        yield Finding(Level.WARNING, "machine.little-memory", what, step)


def _shared_memory(present: _Vendors, root: str) -> Iterator[Finding]:
    size = _shared_memory_size(root)
    if size is None:
        return
    what = f"the size of /dev/shm is {_size(size)}"
    if present and size <= _DOCKER_SHARED_MEMORY:
        what += ", which is too small for the workers of data loaders"
        step = "start the container with --ipc=host or --shm-size=8g"
        yield Finding(Level.WARNING, "machine.little-shared-memory", what, step)
    else:
        yield Finding(Level.OK, "machine.shared-memory", what)


def _shared_memory_size(root: str) -> int | None:
    """Return the size of /dev/shm in bytes, or `None` if it is unknown.

    The workers of data loaders pass tensors through /dev/shm.
    """
    try:
        status = os.statvfs(hardware.under_root(root, "/dev/shm"))
    except (
        AttributeError,
        OSError,
    ):  # Windows has no statvfs, and the folder may be missing.
        return None
    return status.f_blocks * status.f_frsize


def _stale_locks(context: DiagnosticContext) -> Iterator[Finding]:
    """Yield a finding if there are old locks of torch's JIT builds.

    A build that is killed leaves its lock, and later builds wait for this lock forever.
    """
    caches = context.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    extensions = context.environ.get("TORCH_EXTENSIONS_DIR")
    folder = Path(extensions or Path(caches, "torch_extensions"))
    locks = [*folder.glob("*/lock"), *folder.glob("*/*/lock")]
    stale = [lock for lock in locks if _age(lock) > _LONGEST_BUILD]
    if stale:
        folders = ", ".join(str(lock.parent) for lock in stale)
        what = f"builds of extensions wait for a lock in {folders} that is more than an hour old"
        step = f"if no build is running there: rm {shlex.join(map(str, stale))}"
        yield Finding(Level.WARNING, "machine.stale-lock", what, step)


def _age(path: Path) -> float:
    """Return the seconds since the file was written, or 0 if the file was removed."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _examine(context: DiagnosticContext) -> Iterator[Finding]:
    requested = {pin.name.partition(".")[0] for pin in context.requested}
    for finding in findings(context):
        if not requested or not finding.about or finding.about in requested:
            yield finding


TOPIC = Topic("machine", "Machine", _examine)
