"""The machine itself: torch's build against the hardware on the bus, drivers, container, memory, cores.

It reads files and the bus. Only if there is an NVIDIA GPU that torch was built for does a child process
import torch, to see whether it has code for that GPU.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from accel_core import TorchBuild, __version__, hardware, packages, torch_build
from accel_core.hardware import bus, placement, vendors
from accel_core.plugins import installed_names
from accel_core.settings import OWN_DISTRIBUTIONS
from accel_tools.doctor.in_child import architectures
from accel_tools.doctor.records import Finding, Level, Topic, Visit
from accel_tools.machine import driver_of, processor_name
from accel_tools.setup import installed
from accel_tools.setup.machines import driver_version

__all__ = ["TOPIC", "findings", "uncovered"]

#: Where NVIDIA's forward compatibility package puts a newer libcuda.so.1 for an older driver:
#: https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
_FORWARD = "/usr/local/cuda/compat"

#: Seconds: no build of an extension takes longer.
_LONGEST_BUILD = 3600.0

_MIB, _GIB = 1 << 20, 1 << 30
#: Less than this below the limit of the control group, and `import torch` with a vendor's package may end
#: the process without a word.
_LITTLE_MEMORY = 512 * _MIB
#: What Docker gives a container without --shm-size: https://docs.docker.com/reference/cli/docker/container/run/
_DOCKERS_SHARED_MEMORY = 64 * _MIB


def findings(visit: Visit, root: str = "/") -> Iterator[Finding]:
    """Yield findings on the machine whose `/sys`, `/proc` and `/dev` are below `root`."""
    build = torch_build()
    present = vendors.known_hardware(root)
    yield _seen(present, root, visit)
    yield from _torch(build, present, visit, root)
    yield from _driver(build, present, visit, root)
    yield from _code(build, present, visit)
    yield from _plugins()
    yield from _releases()
    yield from _container(present, visit, root)
    yield from _memory(present, root)
    yield from _locks(visit)


def _locks(visit: Visit) -> Iterator[Finding]:
    """Yield old locks of torch's JIT builds: later builds wait for the one that a killed build left."""
    given = visit.environ.get("TORCH_EXTENSIONS_DIR")
    caches = visit.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(given or Path(caches, "torch_extensions"))
    locks = [*folder.glob("*/lock"), *folder.glob("*/*/lock")]
    old = [lock for lock in locks if _seconds_old(lock) > _LONGEST_BUILD]
    if old:
        names = ", ".join(str(lock.parent) for lock in old)
        what = f"torch waits to compile in {names}: the lock there is more than an hour old"
        step = f"if nothing compiles there: rm {shlex.join(map(str, old))}"
        yield Finding(Level.WARNING, "machine.stale-lock", what, step)


def _seconds_old(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:  # its build has just ended
        return 0.0


def _releases() -> Iterator[Finding]:
    """Yield distributions of ours that are of another release than the core, with which they are released."""
    for name in sorted(OWN_DISTRIBUTIONS):
        version = packages.version(name)
        if version and version != __version__:
            what = (
                f"{name} {version} is installed beside accel-core {__version__}; "
                "they are released together"
            )
            step = vendors.install_command(
                name, version=__version__, option="--upgrade"
            )
            yield Finding(Level.WARNING, "machine.other-release", what, step)


# --- What is here --------------------------------------------------------------------------------------


def _seen(present: Sequence[vendors.Vendor], root: str, visit: Visit) -> Finding:
    """The hardware, and what this process may use of the computer."""
    facts = {
        "system": f"{platform.system()} {platform.release()} on {platform.machine()}",
        "Python": platform.python_version(),
        "processor": processor_name(root),
        "cores": f"{hardware.usable_cores()} usable of {os.cpu_count() or 1}",
    }
    if (quota := hardware.cgroup_cpu_quota(root)) is not None:
        facts["time of cores, by the control group"] = f"{quota:g}"
    if (limit := hardware.cgroup_memory_limit(root)) is not None:
        left = hardware.cgroup_memory_available(root) or 0
        facts["memory, by the control group"] = (
            f"{_size(limit)}, of which {_size(left)} are free"
        )
    if place := placement.placement(root, visit.environ):
        where = [place.name.removeprefix("this ")] if place.container else []
        facts["runs in"] = ", ".join(
            [*where, *([f"Slurm's job {place.slurm_job}"] * bool(place.slurm_job))]
        )
    for known in present:
        facts[known.label] = str(known.evidence)
    for function in bus.pci_devices(root):
        driver = driver_of(function.address, root)
        if driver and any(str(function) in known.evidence.pci for known in present):
            facts[f"driver of {function.address}"] = driver
    labels = ", ".join(dict.fromkeys(known.label for known in present))
    return Finding(
        Level.OK,
        "machine.seen",
        f"{labels or 'No accelerator'} on this machine",
        facts=facts,
    )


def _size(amount: int) -> str:
    return f"{amount / _GIB:.1f} GiB" if amount >= _GIB else f"{amount / _MIB:.0f} MiB"


# --- torch ---------------------------------------------------------------------------------------------


def _torch(
    build: TorchBuild | None, present: Sequence[vendors.Vendor], visit: Visit, root: str
) -> Iterator[Finding]:
    if build is None:  # the topic `candidates` says so
        return
    fits = True
    for known in present:
        with_driver = driver_version(root) if known.label == "NVIDIA GPU" else ""
        what = installed.unfit(build, known.label, str(known.evidence), with_driver)
        if not what:
            continue
        fits = False
        code = (
            "machine.cpu-build"
            if not (build.cuda or build.hip or build.xpu)
            else "machine.other-build"
        )
        step = f"accel setup {'rocm' if known.label == 'AMD GPU' else known.backend}"
        if known.label in installed.OWN_BUILDS:
            step = f"take torch from {known.label.partition(' ')[0]}: {installed.OWN_BUILDS[known.label][1]}"
        yield Finding(_severity(visit, known.backend), code, what, step, known.backend)
    if fits:
        yield Finding(Level.OK, "machine.torch", f"{build} fits the hardware")


def _severity(visit: Visit, backend: str) -> Level:
    """Return the level of present hardware that fails: no error if the user asked for other hardware."""
    other = visit.settings.pins and all(
        pin.name.partition(".")[0] != backend for pin in visit.settings.pins
    )
    blocked = any(pin.name.partition(".")[0] == backend for pin in visit.settings.block)
    return Level.WARNING if other or blocked else Level.ERROR


# --- NVIDIA's driver and GPUs --------------------------------------------------------------------------


def _driver(
    build: TorchBuild | None, present: Sequence[vendors.Vendor], visit: Visit, root: str
) -> Iterator[Finding]:
    version = driver_version(root)
    if not version or not build or not build.cuda or not _has(present, "NVIDIA GPU"):
        return
    what = installed.too_old(build, version)
    facts = {"driver": version, "torch": str(build)}
    if not what:
        what = f"NVIDIA's driver {version} is new enough for CUDA {build.cuda}"
        yield Finding(Level.OK, "machine.driver", what, about="cuda", facts=facts)
        return
    # A newer libcuda may stand in for the driver's own, and CUDA 13 runs on what CUDA 12 was made for.
    may_work = hardware.path_exists(_FORWARD, root) or _usable(visit, "cuda")
    yield Finding(
        Level.WARNING if may_work else _severity(visit, "cuda"),
        "machine.driver-too-old",
        what,
        "accel setup cuda",
        "cuda",
        facts,
    )


def _usable(visit: Visit, backend: str) -> bool:
    """Whether the device was counted, whatever the files say."""
    return any(
        verdict.usable and verdict.name == backend
        for verdict in visit.survey().verdicts
    )


def _has(present: Iterable[vendors.Vendor], label: str) -> bool:
    return any(known.label == label for known in present)


def _code(
    build: TorchBuild | None, present: Sequence[vendors.Vendor], visit: Visit
) -> Iterator[Finding]:
    """Whether torch has code for the GPUs; only a driver tells what they are."""
    nodes = [
        node
        for known in present
        if known.label == "NVIDIA GPU"
        for node in known.evidence.nodes
    ]
    if not build or not build.cuda or not nodes:
        return
    from accel_core.sandbox import child

    try:
        report = child.run(architectures, {}, visit.settings.probe_timeout)
    except OSError:
        return
    if report.answer is None:  # the verdict on the backend says why
        return
    has: list[str] = report.answer["torch"]
    gpus: list[tuple[str, int, int]] = report.answer["gpus"]
    for name, major, minor in gpus:
        capability = f"{major}.{minor}"
        facts = {
            "GPU": name,
            "compute capability": capability,
            "torch has code for": " ".join(has),
        }
        if uncovered((major, minor), has):
            yield Finding(
                Level.ERROR, "machine.no-code", f"{build} has no code for {name} (compute capability "
                f"{capability})", "https://pytorch.org/get-started/locally/ has other builds", "cuda", facts,
            )  # fmt: skip
        else:
            yield Finding(
                Level.OK,
                "machine.code",
                f"torch has code for {name}",
                about="cuda",
                facts=facts,
            )


def uncovered(capability: tuple[int, int], has: Iterable[str]) -> bool:
    """Return whether none of torch's architectures runs on a GPU of that compute capability.

    `has`: torch's architectures; if it is empty, the result is False. Machine code (`sm_86`) runs on GPUs of
    the same major version and the same or a higher minor version; `sm_90a` runs on that GPU only, `sm_100f`
    on its family. Intermediate code (`compute_90`) is compiled for newer GPUs:
    https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/, "GPU Compilation".
    """
    names = [
        name for name in has if re.fullmatch(r"(sm|compute)_[0-9]+[0-9][af]?", name)
    ]
    return bool(names) and not any(_runs(name, *capability) for name in names)


def _runs(name: str, major: int, minor: int) -> bool:
    kind, _, number = name.partition("_")
    at = int(number.rstrip("af"))
    if number.endswith("a"):
        return divmod(at, 10) == (major, minor)
    if kind == "compute" and not number.endswith("f"):
        return at <= 10 * major + minor
    return at // 10 == major and at % 10 <= minor


# --- Plugins, containers, memory -----------------------------------------------------------------------


def _plugins() -> Iterator[Finding]:
    """Hardware without its plugin; entry points are named as their backends, so nothing is imported."""
    for vendor in vendors.hardware_without_plugin(installed_names()):
        step = vendors.install_command(vendor.distribution)
        what = vendor.missing_plugin_clause()
        yield Finding(Level.WARNING, "machine.no-plugin", what, step, vendor.backend)


def _container(
    present: Sequence[vendors.Vendor], visit: Visit, root: str
) -> Iterator[Finding]:
    """Hardware of the host's that the container has no device node of."""
    place = placement.placement(root, visit.environ)
    if not place.container:
        return
    with_nodes = {vendor.label for vendor in vendors.VENDORS if vendor.nodes}
    for known in present:
        if (
            known.label in with_nodes
            and known.evidence.pci
            and not known.evidence.nodes
        ):
            yield Finding(
                _severity(visit, known.backend), "machine.no-nodes",
                f"the host has the {known.label} ({known.evidence}), but {place.name} lacks its device node",
                f"start it with the devices. How: accel why {known.backend}, with {known.distribution}",
                known.backend,
            )  # fmt: skip


def _memory(present: Sequence[vendors.Vendor], root: str) -> Iterator[Finding]:
    left = hardware.cgroup_memory_available(root)
    if left is not None and left < _LITTLE_MEMORY:
        limit = hardware.cgroup_memory_limit(root) or 0
        yield Finding(
            Level.WARNING, "machine.little-memory",
            f"the control group leaves {_size(left)} of {_size(limit)}: beyond it, processes are killed",
            "give the container or job more memory",
        )  # fmt: skip
    shared = _shared_memory(root)
    if shared is not None:
        small = bool(present) and shared <= _DOCKERS_SHARED_MEMORY
        yield Finding(
            Level.WARNING if small else Level.OK,
            "machine.little-shared-memory" if small else "machine.shared-memory",
            f"/dev/shm holds {_size(shared)}"
            + (", too little for workers of data loaders" if small else ""),
            "start the container with --ipc=host or --shm-size=8g" if small else "",
        )


def _shared_memory(root: str) -> int | None:
    """Bytes that /dev/shm, through which data loaders' workers hand tensors over, can hold."""
    try:
        status = os.statvfs(hardware.under_root(root, "/dev/shm"))
    except (AttributeError, OSError):  # Windows; no such folder
        return None
    return status.f_blocks * status.f_frsize


def _examine(visit: Visit) -> Iterator[Finding]:
    asked = {pin.name.partition(".")[0] for pin in visit.names}
    return (f for f in findings(visit) if not asked or not f.about or f.about in asked)


TOPIC = Topic("machine", "Machine", _examine)
