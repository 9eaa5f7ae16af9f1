"""Facts about a candidate that need no import of torch or of a vendor's package, the cheapest first.

Policy; platform; the vendor's package, whether it fits torch, who holds torch's namespace;
device nodes and PCI ids; whether torch was built for the device; variables that hide every device; the
driver; required distributions. No plugin is registered for any of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from accel_core._support.torch_import import BUILDS, is_running, namespace_taken_by, torch_build
from accel_core.backend import Backend
from accel_core.detection.creation import impersonated, installed_imports, taken_over_by
from accel_core.detection.records import Candidate, Outcome, Status, Unloaded
from accel_core.errors import BackendUnavailableError, shown
from accel_core.machine import devices, host
from accel_core.machine.devices import Evidence
from accel_core.settings import Settings

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from accel_core.machine.visible_devices import Hidden

__all__ = ["examine", "hidden", "impersonator"]


def examine(
    candidate: Candidate | Unloaded,
    settings: Settings,
    evidence: Evidence | None,
    *,
    pinned: bool = False,
    root: str = "/",
) -> tuple[Outcome | None, Outcome | None]:
    """Return what rules `candidate` out, and what speaks against its device without deciding; else `None`.

    Nothing that speaks against the device decides about a pin. Where device nodes are all that is known of
    the hardware their absence does not decide either: drivers rename them, and the vendor can count.

    `evidence` of its hardware, as `machine` gives it. `pinned`: the user asked for this backend by name, so
    it may be usable without a device. `root`: the folder under which `/proc` and the container's marks are
    looked for.
    """
    refused = _policy(candidate.name, candidate.distribution, settings)
    if refused is not None:
        return refused, None
    if isinstance(candidate, Unloaded):
        return candidate.outcome, None
    absence: Outcome | None = None
    for fact in _facts(candidate.backend, evidence, root):
        outcome = fact()
        if outcome is None:
            continue
        conjecture = fact.func is _hardware and not candidate.backend.pci_ids
        if not (outcome.is_absence and (pinned or conjecture)):
            sure = pinned and candidate.backend.pci_ids
            here = _hardware(candidate.backend, evidence, root) if sure else None
            return (_both(here, outcome) if here else outcome), absence
        absence = absence or outcome
    return None, absence


def _both(absence: Outcome, obstacle: Outcome) -> Outcome:
    """Join both reasons against a pin; the first step is a machine with the device, not an installation."""
    return obstacle._replace(
        reason=f"{absence.reason.partition(' (none of')[0]}; and {obstacle.reason}",
        hint="run on a machine that has one"
        + (f", or, to go on without a device: {obstacle.hint}" if obstacle.hint else ""),
    )


def _facts(backend: Backend, evidence: Evidence | None, root: str) -> Iterator[partial[Outcome | None]]:
    yield partial(_platform, backend)
    yield partial(_installed, backend, evidence)
    yield partial(_follows_torch, backend)
    yield partial(_namespace, backend)
    running = is_running(backend.device_type)
    # Before torch's build: where there is no device, another build of torch is no help.
    if not running:
        yield partial(_hardware, backend, evidence, root)
    yield partial(_torch_builds, backend)
    if not running:
        yield partial(_hidden, backend)
        yield partial(_driver, backend, evidence, root)
    # Last, for reading version ranges costs more than all the rest together.
    yield partial(_requirements, backend)


def _policy(name: str, distribution: str, settings: Settings) -> Outcome | None:
    for pin in settings.block:
        if pin.matches(name, distribution):
            return Outcome(Status.BLOCKED, "ACCEL_BLOCK names it", f"take {pin} out of ACCEL_BLOCK")
    if not settings.allow or any(pin.matches(name, distribution) for pin in settings.allow):
        return None
    return Outcome(Status.BLOCKED, "ACCEL_ALLOW does not name it", f"add {name} to ACCEL_ALLOW")


def _platform(backend: Backend) -> Outcome | None:
    if host.platform_matches(backend.platforms):
        return None
    return Outcome(Status.NO_DEVICE, f"this device exists on {', '.join(backend.platforms)} only")


# --- The vendor's package and torch --------------------------------------------------------------------


def _installed(backend: Backend, evidence: Evidence | None) -> Outcome | None:
    if installed_imports(backend):
        return None
    reason = f"{' or '.join(backend.vendor_imports)} is not installed"
    if evidence:
        reason += f", though the hardware is there: {evidence}"
    return Outcome(Status.NOT_INSTALLED, reason, backend.install_hint)


def _follows_torch(backend: Backend) -> Outcome | None:
    """Whether what is built for one release of torch was built for the torch that is here.

    Some such packages end the process when they are imported beside another torch.
    """
    build = torch_build() if backend.follows_torch else None
    if build is None:  # creation says that torch is missing
        return None
    from accel_core._support.packages import version

    for name in backend.follows_torch:
        installed = version(name)
        if installed is None:
            return Outcome(Status.NOT_INSTALLED, f"{name} is not installed", backend.install_hint)
        release = _minor(installed)
        if release != _minor(build.version):
            reason = (
                f"{name} {installed} works with torch {release} only, and torch {build.version} is installed"
            )
            otherwise = f"pip install 'torch=={release}.*', or: {backend.install_hint}".removesuffix(", or: ")
            return Outcome(Status.INCOMPATIBLE, reason, _known_hint(reason, backend) or otherwise)
    return None


def _known_hint(reason: str, backend: Backend) -> str | None:
    """The plugin's own next step where its hints know the reason, as they know errors."""
    from accel_core.errors import hint_for  # here, for this is nearly never asked

    return hint_for(BackendUnavailableError(reason), backend.hints)


def _minor(text: str) -> str:
    """`"2.8"` of `"2.8.10+xpu"`."""
    return ".".join(text.split("+", maxsplit=1)[0].split(".")[:2])


#: What brings a device type into torch, where that is one of several builds.
_BUILDS_OF = {"cuda": ("cuda", "hip")}


def _torch_builds(backend: Backend) -> Outcome | None:
    """Whether torch was built with what the backend needs of it.

    A torch that lacks the device type lacks every build that brings it: "without CUDA and ROCm".
    """
    build = torch_build() if backend.torch_builds else None
    if build is None or build.has_any(backend.torch_builds):
        return None
    needed = _BUILDS_OF.get(backend.device_type, backend.torch_builds)
    lacking = " and ".join(BUILDS[name] for name in needed if not getattr(build, name))
    reason = f"torch {build.version} is {build.kind}, without {lacking}"
    return Outcome(Status.NO_DEVICE, reason, backend.install_hint)


def _namespace(backend: Backend) -> Outcome | None:
    """Whether `torch.<device_type>` of torch itself was taken over by another vendor's package.

    So do torch_supa's autoload, `torch_npu.contrib.transfer_to_npu` and torch_mlu's `gpu_migration` with
    torch.cuda, which then reports a device that is not CUDA's. What takes it over below Python is known by
    name alone.
    """
    other = impersonator(backend)
    return Outcome(Status.STANDS_ASIDE, *impersonated(backend, other)) if other else None


def impersonator(backend: Backend) -> str:
    """The package that has taken the backend's namespace over in this process; empty where none has."""
    other = taken_over_by(backend)
    if other or backend.vendor_imports != ("torch",):
        return other
    return namespace_taken_by(backend.device_type, ("torch", *backend.wrapped_by))


# --- The device ----------------------------------------------------------------------------------------


def _hardware(backend: Backend, evidence: Evidence | None, root: str) -> Outcome | None:
    if evidence is None or evidence:
        return None
    sought = ", ".join([*backend.device_nodes, *(f"PCI {pattern}" for pattern in backend.pci_ids)])
    if not backend.pci_ids and (outcome := _no_node(backend, sought, root)):
        return outcome
    build = torch_build() if backend.torch_builds else None
    if not backend.hardware or not backend.pci_ids:
        reason = f"this machine has none of {sought}"
    elif build is not None and build.has_any(backend.torch_builds):
        reason = f"torch {build.version} is {build.kind}, and this machine has no {backend.hardware}"
    else:
        reason = f"this machine has no {backend.hardware} (none of {sought})"
    return Outcome(Status.NO_DEVICE, reason, _from_cluster(backend, root), devices=0)


#: What Slurm and Kubernetes set for every process of theirs, as `machine.placement` knows them.
_SCHEDULERS = ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST")


def _from_cluster(backend: Backend, root: str) -> str:
    """Return what to request from the scheduler that chose this machine, which lacks the device."""
    if not backend.hardware or not any(name in os.environ for name in _SCHEDULERS):
        return ""
    from accel_core.machine.placement import placement  # here, as most machines are in no cluster

    step = placement(root).schedulers_step(backend)
    return f"if the cluster has {_with_article(backend.hardware)}, {step}" if step else ""


def _no_node(backend: Backend, nodes: str, root: str) -> Outcome | None:
    """Return the likely cause of a missing device node if the bus does not show whether there is a device."""
    from accel_core.machine.placement import placement

    device, place = _with_article(backend.hardware), placement(root)
    if place.container and (step := place.step(backend)):
        reason = f"{place.name} has none of {nodes}"
        return Outcome(Status.NO_DEVICE, reason, f"if the host has {device}, {step}", devices=0)
    if backend.driver_file and not host.path_exists(backend.driver_file, root):
        reason = f"this machine has none of {nodes}, and the driver of {device} is not loaded"
        return Outcome(Status.NO_DEVICE, reason, f"if it has {device}, {backend.driver_hint}", devices=0)
    return None


def _hidden(backend: Backend) -> Outcome | None:
    if not any(name in os.environ for name in backend.visible_devices_filters + backend.visible_devices):
        return None
    from accel_core.machine.visible_devices import hiding  # its patterns cost more than all the other facts

    hides = hiding(backend, os.environ)
    if hides is None or hides.malformed:  # what a runtime makes of a malformed value, it must tell
        return None
    return hidden(backend, hides)


def hidden(backend: Backend, variable: Hidden) -> Outcome:
    """`no_device` where a variable hides every device of `backend`."""
    from accel_core.machine.placement import placement

    place = placement()
    if place.withheld(backend):  # Slurm writes NoDevFiles, or nothing, into the variable of a job without any
        reason = f"{variable}; Slurm gave the job {place.slurm_job} none"
        return Outcome(Status.NO_DEVICE, reason, place.schedulers_step(backend), devices=0)
    hint = f"unset {variable.variable}, or name in it the devices to use"
    return Outcome(Status.NO_DEVICE, str(variable), hint, devices=0)


def _driver(backend: Backend, evidence: Evidence | None, root: str) -> Outcome | None:
    """Why a device that is on the bus has no device node: no driver, or a container without its devices."""
    if not evidence or evidence.nodes or not backend.hardware:
        return None
    if devices.device_nodes(backend.shared_nodes, root):
        return None
    device = _with_article(backend.hardware)
    if backend.driver_file and not host.path_exists(backend.driver_file, root):
        reason = f"{device} is on the bus ({evidence}), but its driver is not loaded"
        return Outcome(Status.NO_DEVICE, reason, backend.driver_hint, devices=0)
    from accel_core.machine.placement import placement

    nodes, place = " or ".join([*backend.device_nodes[:1], *backend.shared_nodes[:1]]), placement(root)
    if nodes and place.container and (step := place.step(backend)):
        reason = f"the host has {device} ({evidence}), but {place.name} has no {nodes}"
        return Outcome(Status.NO_DEVICE, reason, step, devices=0)
    return None  # some drivers make their nodes at the first use


def _with_article(name: str) -> str:
    """`"an NVIDIA GPU"`, `"a Biren GPU"`: a word in capitals is spelled."""
    spelled = name[:2].isupper() and name[0] in "FHLMNRSX"
    return f"{'an' if spelled or name[:1] in tuple('AEIOU') else 'a'} {name}"


# --- Required distributions ----------------------------------------------------------------------------


def _requirements(backend: Backend) -> Outcome | None:
    """Required distributions and their versions, from metadata; markers that do not apply are passed over."""
    if not backend.requires:
        return None
    for text in backend.requires:
        try:
            outcome = _requirement(text, backend)
        # Every error of packaging's is a ValueError, also of a marker that cannot be evaluated.
        except (ValueError, RecursionError) as error:
            return Outcome(
                Status.INVALID, f"its requirement {shown(text)} is malformed: {error}", error=error
            )
        if outcome is not None:
            return outcome
    return None


def _requirement(text: str, backend: Backend) -> Outcome | None:
    from packaging.requirements import Requirement

    from accel_core._support.packages import version

    requirement = Requirement(text)
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None
    installed = version(requirement.name)
    if installed is None:
        hint = backend.install_hint or f"pip install '{text}'"
        return Outcome(Status.NOT_INSTALLED, f"{requirement.name} is not installed", hint)
    if _satisfies(installed, requirement):
        return None
    reason = f"it needs {text} and {requirement.name} {installed} is installed"
    return Outcome(Status.INCOMPATIBLE, reason, f"pip install '{text}'")


def _satisfies(installed: str, requirement: Requirement) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return requirement.specifier.contains(Version(installed), prereleases=True)
    except InvalidVersion:  # a private build's own scheme lies in no range
        return not requirement.specifier
