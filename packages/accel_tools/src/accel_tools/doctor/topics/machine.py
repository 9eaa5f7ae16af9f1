"""Examine the machine: torch's build, hardware, drivers, container, memory and cores.

Most information is read from files. If there is an NVIDIA GPU and torch is built for CUDA, a child
process imports torch to check that torch has code for the GPU.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accel_core import TorchBuild, __version__, hardware, packages, torch_build
from accel_core.explain.device_access import container_name
from accel_core.hardware import bus, vendors
from accel_core.hardware.placement import detect_placement
from accel_core.plugins import installed_names
from accel_core.settings import OWN_DISTRIBUTIONS
from accel_tools.doctor.child_functions import read_gpu_architectures
from accel_tools.doctor.records import DiagnosticContext, Finding, Level, Topic
from accel_tools.machine import cpu_name, driver_of, is_loopback_down
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
#: The amount of free memory in the cgroup below which the kernel may kill a process that imports torch and
#: a vendor package, without a message.
_LITTLE_MEMORY = 512 * _MIB
#: The size of /dev/shm in a Docker container that was started without --shm-size:
#: https://docs.docker.com/reference/cli/docker/container/run/
_DOCKER_SHARED_MEMORY = 64 * _MIB

_Vendors = Sequence[vendors.Vendor]


def findings(context: DiagnosticContext, root: str = "/") -> Iterator[Finding]:
    """Yield all findings about the machine.

    `root` is the folder that contains `/sys`, `/proc` and `/dev`.
    """
    build = torch_build()
    present = vendors.known_hardware(root)
    yield _hardware_finding(present, root, context)
    if build is not None:  # The topic `candidates` reports that torch is missing.
        yield from _torch_build_findings(build, present, context, root)
        if build.cuda and _nvidia_evidence(present) is not None:
            yield from _nvidia_driver_findings(build, context, root)
            yield from _gpu_code_findings(build, present, context)
    yield from _missing_plugin_findings()
    yield from _version_mismatch_findings()
    yield from _container_findings(present, context, root)
    yield from _memory_findings(root)
    yield from _cpu_time_findings()
    yield from _umask_findings(root)
    yield from _closed_input_findings()
    yield from _other_python_findings(context.environ)
    yield from _loopback_findings()
    yield from _shared_memory_findings(present, root)
    yield from _stale_lock_findings(context)


# --- Hardware ------------------------------------------------------------------------


def _hardware_finding(
    present: _Vendors, root: str, context: DiagnosticContext
) -> Finding:
    """Return the finding about the accelerators, and the cores and memory that this process may use."""
    labels = dict.fromkeys(vendor.label for vendor in present)
    accelerators = ", ".join(labels) or "No accelerator"
    what = f"{accelerators} on this machine"
    facts = {
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "Python": platform.python_version(),
        "CPU": cpu_name(root),
        "cores": f"{hardware.usable_cores()} usable of {os.cpu_count() or 1}",
        **dict(_control_group_facts(root)),
        "runs in": _describe_environment(root, context),
        **dict(_device_facts(present, root)),
    }
    known_facts = {name: value for name, value in facts.items() if value}
    return Finding(Level.OK, "machine.seen", what, facts=known_facts)


def _control_group_facts(root: str) -> Iterator[tuple[str, str]]:
    """Yield the cgroup limits on CPU time and memory, as names and texts."""
    cpu_quota = hardware.cgroup_cpu_quota(root)
    if cpu_quota is not None:
        yield "CPU quota of the control group", f"{cpu_quota:g}"
    memory_limit = hardware.cgroup_memory_limit(root)
    if memory_limit is not None:
        free = hardware.cgroup_memory_available(root) or 0
        value = f"{_format_size(memory_limit)}, of which {_format_size(free)} are free"
        yield "memory of the control group", value


def _describe_environment(root: str, context: DiagnosticContext) -> str:
    """Return the container and the Slurm job in which this process runs.

    Returns an empty string if there is neither.
    """
    environment = detect_placement(root, context.environ)
    parts = []
    if environment.container:
        parts.append(container_name(environment))
    if environment.slurm_job:
        parts.append(f"Slurm job {environment.slurm_job}")
    return ", ".join(parts)


def _device_facts(present: _Vendors, root: str) -> Iterator[tuple[str, str]]:
    """Yield the evidence of each kind of accelerator, and the driver of each PCI device."""
    for vendor in present:
        yield vendor.label, str(vendor.evidence)
    accelerators: list[str] = []
    for vendor in present:
        accelerators += vendor.evidence.pci
    for device in bus.pci_devices(root):
        if str(device) in accelerators:
            yield f"driver of {device.address}", driver_of(device.address, root)


def _format_size(byte_count: int) -> str:
    """Return a number of bytes as text, such as `"1.5 GiB"` or `"64 MiB"`."""
    if byte_count >= _GIB:
        return f"{byte_count / _GIB:.1f} GiB"
    return f"{byte_count / _MIB:.0f} MiB"


# --- torch's build -------------------------------------------------------------------


def _torch_build_findings(
    build: TorchBuild, present: _Vendors, context: DiagnosticContext, root: str
) -> Iterator[Finding]:
    """Yield a finding about each accelerator that torch's build cannot use, or that the build fits all."""
    is_cpu_build = not (build.cuda or build.hip or build.xpu)
    code = "machine.cpu-build" if is_cpu_build else "machine.other-build"
    fits_hardware = True
    for vendor in present:
        driver = driver_version(root) if vendor.label == _NVIDIA else ""
        evidence = str(vendor.evidence)
        problem = installed.describe_build_mismatch(
            build, vendor.label, evidence, driver
        )
        if problem:
            fits_hardware = False
            level = _level_of_hardware_problem(context, vendor.backend)
            step = _step_for_fitting_build(vendor)
            yield Finding(level, code, problem, step, vendor.backend)
    if fits_hardware:
        yield Finding(Level.OK, "machine.torch", f"{build} fits the hardware")


def _step_for_fitting_build(vendor: vendors.Vendor) -> str:
    """Return the step that installs a build of torch for the vendor's hardware."""
    if vendor.label in installed.VENDOR_BUILDS:
        url = installed.VENDOR_BUILDS[vendor.label].url
        vendor_name = vendor.label.partition(" ")[0]
        return f"install torch from {vendor_name}: {url}"
    name = "rocm" if vendor.label == "AMD GPU" else vendor.backend
    return f"accel setup {name}"


def _level_of_hardware_problem(context: DiagnosticContext, backend: str) -> Level:
    """Return the level of a problem with present hardware.

    The level is `WARNING` if settings exclude the hardware's backend, and `ERROR` otherwise.
    """
    settings = context.settings
    # A name such as xpu.external belongs to the hardware of xpu.
    pinned = [pin.name.partition(".")[0] for pin in settings.pins]
    blocked = [pin.name.partition(".")[0] for pin in settings.block]
    is_other_pinned = pinned != [] and backend not in pinned
    if backend in blocked or is_other_pinned:
        return Level.WARNING
    return Level.ERROR


# --- NVIDIA's driver and GPUs --------------------------------------------------------


def _nvidia_evidence(present: _Vendors) -> bus.Evidence | None:
    """Return the evidence of NVIDIA GPUs.

    Returns `None` if the machine has no NVIDIA GPU.
    """
    for vendor in present:
        if vendor.label == _NVIDIA:
            return vendor.evidence
    return None


def _nvidia_driver_findings(
    build: TorchBuild, context: DiagnosticContext, root: str
) -> Iterator[Finding]:
    """Yield the finding whether the NVIDIA driver is new enough for torch's CUDA version."""
    version = driver_version(root)
    if not version:
        return
    facts = {"driver": version, "torch": str(build)}
    problem = installed.describe_driver_mismatch(build, version)
    if not problem:
        what = f"NVIDIA driver {version} is new enough for CUDA {build.cuda}"
        yield Finding(Level.OK, "machine.driver", what, about="cuda", facts=facts)
        return
    level = _level_of_hardware_problem(context, "cuda")
    # An old driver may have no effect: a newer libcuda may replace the driver's libcuda, and CUDA 13
    # can run code for CUDA 12.
    has_newer_libcuda = hardware.path_exists(_FORWARD_COMPATIBILITY, root)
    if has_newer_libcuda or _is_usable("cuda", context):
        level = Level.WARNING
    code, step = "machine.driver-too-old", "accel setup cuda"
    yield Finding(level, code, problem, step, "cuda", facts)


def _is_usable(backend: str, context: DiagnosticContext) -> bool:
    """Return whether the backend's probe has succeeded."""
    verdicts = context.survey().verdicts
    return any(verdict.usable and verdict.name == backend for verdict in verdicts)


def _gpu_code_findings(
    build: TorchBuild, present: _Vendors, context: DiagnosticContext
) -> Iterator[Finding]:
    """Yield a finding about each GPU: whether torch has code for its compute capability."""
    evidence = _nvidia_evidence(present)
    has_device_nodes = evidence is not None and bool(evidence.nodes)
    if not has_device_nodes:
        return
    answer = _query_gpu_architectures(context)
    if answer is None:  # The verdict on the backend contains the reason.
        return
    architectures: list[str] = answer["architectures"]
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
            what = f"torch has compiled kernels for {name}"
            yield Finding(Level.OK, "machine.code", what, about="cuda", facts=facts)


def _query_gpu_architectures(context: DiagnosticContext) -> dict[str, Any] | None:
    """Return the answer of `read_gpu_architectures`, or `None` if the child process fails."""
    from accel_core.sandbox import child

    try:
        report = child.run(read_gpu_architectures, {}, context.settings.probe_timeout)
    except OSError:
        return None
    return report.answer


def has_no_code(capability: tuple[int, int], architectures: Iterable[str]) -> bool:
    """Return whether torch has no code that runs on a GPU with the given compute capability.

    Machine code such as `sm_86` runs on GPUs with the same major version and the same or a higher minor
    version. `sm_90a` runs only on GPUs with exactly this version, and `sm_100f` on GPUs of the same family.
    Intermediate code such as `compute_90` is compiled for newer GPUs:
    https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/, "GPU Compilation".

    Returns False if `architectures` does not contain a CUDA architecture.
    """
    # Other names, such as gfx90a, are not architectures of CUDA.
    cuda_name = re.compile(r"(sm|compute)_[0-9]+[0-9][af]?")
    cuda_architectures = [name for name in architectures if cuda_name.fullmatch(name)]
    if not cuda_architectures:
        return False
    has_code = any(_code_runs_on_gpu(name, capability) for name in cuda_architectures)
    return not has_code


def _code_runs_on_gpu(architecture: str, capability: tuple[int, int]) -> bool:
    """Return whether code for an architecture such as `sm_86` runs on GPUs with the capability."""
    kind, _, number = architecture.partition("_")
    # The last digit is the minor version: 90 means 9.0, and 120 means 12.0.
    code_major, code_minor = divmod(int(number.rstrip("af")), 10)
    gpu_major, gpu_minor = capability
    if number.endswith("a"):  # This code runs on exactly one kind of GPU.
        return (code_major, code_minor) == capability
    # The driver compiles the code of compute_90 for newer GPUs.
    is_compiled_by_driver = kind == "compute" and not number.endswith("f")
    if is_compiled_by_driver:
        return (code_major, code_minor) <= capability
    return code_major == gpu_major and code_minor <= gpu_minor


# --- Distributions -------------------------------------------------------------------


def _missing_plugin_findings() -> Iterator[Finding]:
    """Yield a finding about each accelerator whose plugin is not installed.

    The names of entry points are the names of backends, so no plugin is imported.
    """
    for vendor in vendors.hardware_without_plugin(installed_names()):
        step = vendors.install_command(vendor.distribution)
        what = vendor.missing_plugin_clause()
        yield Finding(Level.WARNING, "machine.no-plugin", what, step, vendor.backend)


def _version_mismatch_findings() -> Iterator[Finding]:
    """Yield a finding about each of accel's distributions whose version differs from that of accel-core."""
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


def _container_findings(
    present: _Vendors, context: DiagnosticContext, root: str
) -> Iterator[Finding]:
    """Yield a finding about each accelerator of the host whose device nodes the container lacks."""
    environment = detect_placement(root, context.environ)
    if not environment.container:
        return
    labels_with_nodes = {vendor.label for vendor in vendors.VENDORS if vendor.nodes}
    # A container sees the PCI bus of its host, but only the device nodes that it was given.
    for vendor in present:
        is_only_on_bus = vendor.evidence.pci and not vendor.evidence.nodes
        if vendor.label in labels_with_nodes and is_only_on_bus:
            what = (
                f"the host has the {vendor.label} ({vendor.evidence}), "
                f"but this {container_name(environment)} lacks its device node"
            )
            step = (
                "start the container with access to the device; if "
                f"{vendor.distribution} is installed, `accel why {vendor.backend}` shows how"
            )
            level = _level_of_hardware_problem(context, vendor.backend)
            yield Finding(level, "machine.no-nodes", what, step, vendor.backend)


def _memory_findings(root: str) -> Iterator[Finding]:
    """Yield a finding if the cgroup has little free memory."""
    free = hardware.cgroup_memory_available(root)
    if free is not None and free < _LITTLE_MEMORY:
        limit = hardware.cgroup_memory_limit(root) or 0
        what = (
            f"only {_format_size(free)} of the control group's {_format_size(limit)} of "
            "memory are free: the kernel kills processes that exceed the limit"
        )
        step = "give the container or job more memory"
        yield Finding(Level.WARNING, "machine.little-memory", what, step)


def _cpu_time_findings() -> Iterator[Finding]:
    """Yield a finding if a limit on CPU time would end a long training.

    The smallest program needs too little time to reach such a limit.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if soft == resource.RLIM_INFINITY:
        return
    what = f"the system ends a process after {soft} s of CPU time (ulimit -t)"
    step = "train where CPU time is not limited, such as in a job of the scheduler"
    if hard == resource.RLIM_INFINITY:
        step = "ulimit -S -t unlimited"
    yield Finding(Level.WARNING, "machine.cpu-time", what, step)


def _umask_findings(root: str) -> Iterator[Finding]:
    """Yield a finding if the umask denies users the files that they create themselves."""
    match = re.search(
        r"^Umask:\s*(\d+)", hardware.read_text("/proc/self/status", root), re.MULTILINE
    )
    if match is None:
        return
    umask = int(match[1], 8)
    owner_bits = 0o700
    if umask & owner_bits:
        what = f"with the umask {umask:04o}, this user may not open the files that a program creates"
        yield Finding(Level.WARNING, "machine.umask", what, "umask 022")


def _closed_input_findings() -> Iterator[Finding]:
    """Yield a finding if the standard input is closed.

    The first file that the program opens then gets the descriptor 0, which some runtimes take for an error.
    The doctor's experiments have an empty standard input, so they do not show the effect.
    """
    if sys.stdin is None:
        what = (
            "the standard input is closed, so the first file that a program opens gets the descriptor 0, "
            "which some programs take for an error"
        )
        step = "start the program with an empty standard input: < /dev/null"
        yield Finding(Level.WARNING, "machine.closed-input", what, step)


def _other_python_findings(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding if the environment of this Python is activated, but `python` is another Python.

    For example, `module load python` puts a folder in front of the environment's folder in `PATH`. Without an
    activated environment, users call Python by its path.
    """
    active = environ.get("VIRTUAL_ENV") or environ.get("CONDA_PREFIX", "")
    python = shutil.which("python", path=environ.get("PATH"))
    if not active or python is None:
        return
    own_folder = Path(sys.executable).parent
    is_own_active = Path(active).resolve() == Path(sys.prefix).resolve()
    is_own_first = Path(python).parent.resolve() == own_folder.resolve()
    if not is_own_active or is_own_first:
        return
    what = f"the environment {active} is activated, but `python` is {python}, which has other packages"
    step = f"export PATH={shlex.quote(str(own_folder))}:$PATH"
    yield Finding(Level.WARNING, "machine.other-python", what, step)


def _loopback_findings() -> Iterator[Finding]:
    """Yield a finding if the loopback interface is down, as in a new network namespace."""
    if is_loopback_down():
        what = "the network interface lo is down, so processes on this host cannot connect to each other"
        step = "run as root: ip link set lo up"
        yield Finding(Level.WARNING, "machine.loopback", what, step)


def _shared_memory_findings(present: _Vendors, root: str) -> Iterator[Finding]:
    """Yield the finding about the size of /dev/shm: a warning if it is small and there is an accelerator."""
    size = _shared_memory_size(root)
    if size is None:
        return
    what = f"the size of /dev/shm is {_format_size(size)}"
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
    except AttributeError:  # Windows has no statvfs.
        return None
    except OSError:  # The folder may be missing.
        return None
    return status.f_blocks * status.f_frsize


def _stale_lock_findings(context: DiagnosticContext) -> Iterator[Finding]:
    """Yield a finding if there are old locks of extensions that torch builds on demand.

    A build that is killed leaves its lock, and later builds wait for this lock forever.
    """
    folder = _extensions_folder(context.environ)
    # torch creates the file `lock` in an extension's folder, and removes the file after the build. By
    # default, the extension's folder is in a folder for the versions of Python and CUDA, such as py311_cu128.
    locks = [*folder.glob("*/lock"), *folder.glob("*/*/lock")]
    stale = [lock for lock in locks if _seconds_since_change(lock) > _LONGEST_BUILD]
    if stale:
        folders = ", ".join(str(lock.parent) for lock in stale)
        what = f"builds of torch extensions wait for a lock in {folders} that is more than an hour old"
        paths = shlex.join(str(lock) for lock in stale)
        step = f"if no build is running in this folder: rm {paths}"
        yield Finding(Level.WARNING, "machine.stale-lock", what, step)


def _extensions_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder in which torch builds extensions."""
    folder = environ.get("TORCH_EXTENSIONS_DIR")
    if folder:
        return Path(folder)
    cache_folder = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache_folder, "torch_extensions")


def _seconds_since_change(path: Path) -> float:
    """Return the seconds since the file was written, or 0 if the file was removed."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _examine_machine(context: DiagnosticContext) -> Iterator[Finding]:
    """Yield the findings about the machine as a whole and about the requested backends."""
    requested = {pin.name.partition(".")[0] for pin in context.requested}
    for finding in findings(context):
        is_about_machine = finding.about == ""
        if not requested or is_about_machine or finding.about in requested:
            yield finding


TOPIC = Topic("machine", "Machine", _examine_machine)
