"""Checks of a backend that import neither torch nor its vendor's package.

A check returns the verdict if it rules the backend out, else `None`. The cheapest come
first; reading version ranges costs more than all the others together.
"""

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from accel_core import builtin, hardware, torch_import
from accel_core.backend import Backend
from accel_core.hardware import bus
from accel_core.hardware.visible_devices import masks, set_variables
from accel_core.packages import is_installed, requirement, version
from accel_core.settings import Pin, Settings
from accel_core.verdict import Reason, Status, Verdict, Why


@dataclass(frozen=True)
class Context:
    """Facts that the checks need beside the verdict."""

    settings: Settings
    #: The user asked for this backend by name, so it may be usable without a device.
    pinned: bool = False
    #: The folder under which `/proc`, `/sys` and `/dev` are looked for.
    root: str = "/"


def ruled_out(
    verdict: Verdict, status: Status, reason: Reason, **facts: Any
) -> Verdict:
    """Return the verdict with a status and its reason."""
    return replace(verdict, status=status, why=Why(reason, facts))


def without_device(verdict: Verdict, reason: Reason, **facts: Any) -> Verdict:
    """Return the verdict for a backend that lacks only a device."""
    found = ruled_out(verdict, Status.NO_DEVICE, reason, **facts)
    return replace(found, devices=0)


def run_checks(
    verdict: Verdict, context: Context
) -> tuple[Verdict | None, Verdict | None]:
    """Return what rules the backend out, and what speaks against its device undecided.

    A missing device does not rule out a pin. If device nodes are all that is known of the
    hardware, their absence does not rule it out either: drivers rename them, and the
    vendor's package can count.
    """
    uncertain: Verdict | None = None
    for check in CHECKS:
        found = check(verdict, context)
        if found is None:
            continue
        if found.lacks_device and (context.pinned or _is_uncertain(found, check)):
            uncertain = uncertain or found
            continue
        if context.pinned:
            found = _on_a_machine_without_it(found, context)
        return found, uncertain
    return None, uncertain


def _is_uncertain(verdict: Verdict, check: object) -> bool:
    """Whether only device nodes could show the hardware, and they are missing."""
    backend = verdict.backend
    return check is _check_hardware and not (backend and backend.hardware.pci_ids)


def _on_a_machine_without_it(found: Verdict, context: Context) -> Verdict:
    """Add to a pin's verdict that the hardware is missing too, if that is certain.

    The first step is then a machine that has it.
    """
    backend = found.backend
    if backend is None or not backend.hardware.pci_ids or found.why is None:
        return found
    missing = _check_hardware(found, context)
    if missing is None:
        return found
    why = Why(Reason.NOR_HARDWARE, {"hardware": missing.why, "because": found.why})
    return replace(found, why=why)


# --- The checks -------------------------------------------------------------------------


def _check_policy(verdict: Verdict, context: Context) -> Verdict | None:
    settings = context.settings
    name, distribution = verdict.name, verdict.distribution
    if settings.permits(name, distribution):
        return None
    for rule in settings.block:
        if rule.matches(name, distribution):
            return _blocked(verdict, "ACCEL_BLOCK", rule)
    return _blocked(verdict, "ACCEL_ALLOW", Pin(name))


def _blocked(verdict: Verdict, variable: str, rule: Pin) -> Verdict:
    return ruled_out(
        verdict, Status.BLOCKED, Reason.BLOCKED, variable=variable, rule=str(rule)
    )


def _check_declaration(verdict: Verdict, _context: Context) -> Verdict | None:
    return None if verdict.backend else verdict


def _check_platform(verdict: Verdict, _context: Context) -> Verdict | None:
    platforms = verdict.declaration.hardware.platforms
    if hardware.platform_matches(platforms):
        return None
    return ruled_out(
        verdict, Status.NO_DEVICE, Reason.OTHER_PLATFORM, platforms=platforms
    )


def _check_vendor_package(verdict: Verdict, _context: Context) -> Verdict | None:
    backend = verdict.declaration
    if installed_imports(backend):
        return None
    return ruled_out(
        verdict,
        Status.NOT_INSTALLED,
        Reason.VENDOR_NOT_INSTALLED,
        modules=backend.vendor_imports,
        distributions=_other_missing_distributions(backend),
    )


def _other_missing_distributions(backend: Backend) -> list[str]:
    """Return the missing distributions that are required besides torch and the vendor's.

    Without `same_version`, which names the vendor's distribution, a required one may be
    that itself.
    """
    vendors_own = backend.in_torch.same_version
    if not vendors_own:
        return []
    missing = []
    for text in backend.requires:
        match = re.match(r"[\w.-]+", text)
        name = match[0] if match else ""
        if name and name not in ("torch", *vendors_own) and version(name) is None:
            missing.append(name)
    return missing


def _check_release_of_torch(verdict: Verdict, _context: Context) -> Verdict | None:
    """Check that what is made for one release of torch is made for the one that is here.

    Some such packages end the process when they are imported with another torch.
    """
    names = verdict.declaration.in_torch.same_version
    build = torch_import.torch_build() if names else None
    if build is None:  # building the accelerator says that torch is missing
        return None
    for name in names:
        installed = version(name)
        if installed is None:
            return ruled_out(
                verdict,
                Status.NOT_INSTALLED,
                Reason.DISTRIBUTION_NOT_INSTALLED,
                name=name,
            )
        release = _minor_release(installed)
        if release != _minor_release(build.version):
            return ruled_out(
                verdict,
                Status.INCOMPATIBLE,
                Reason.MADE_FOR_OTHER_TORCH,
                name=name,
                installed=installed,
                release=release,
                torch=build.version,
            )
    return None


def _minor_release(text: str) -> str:
    """Return `"2.8"` of `"2.8.10+xpu"`."""
    release = text.split("+", maxsplit=1)[0]
    return ".".join(release.split(".")[:2])


def _check_namespace(verdict: Verdict, _context: Context) -> Verdict | None:
    other = namespace_owner(verdict.declaration)
    if not other:
        return None
    return ruled_out(verdict, Status.STANDS_ASIDE, Reason.NAMESPACE_TAKEN, by=other)


def _check_hardware(verdict: Verdict, context: Context) -> Verdict | None:
    """Check for signs of the device; before torch's build, as no build brings a device."""
    if verdict.seen is None or verdict.seen or _is_running(verdict):
        return None
    backend = verdict.declaration
    build = torch_import.torch_build() if backend.in_torch.builds else None
    has_build = build is not None and build.has_any(backend.in_torch.builds)
    return without_device(
        verdict,
        Reason.NO_HARDWARE,
        torch=build.version if build and has_build else "",
        build=build.kind if build and has_build else "",
        root=context.root,
    )


def _check_build_of_torch(verdict: Verdict, _context: Context) -> Verdict | None:
    """Check that torch was built with what the backend needs of it.

    A torch that lacks the device type lacks every build that brings it: "without CUDA and
    ROCm".
    """
    backend = verdict.declaration
    builds = backend.in_torch.builds
    build = torch_import.torch_build() if builds else None
    if build is None or build.has_any(builds):
        return None
    needed = ("cuda", "hip") if backend.device_type == "cuda" else builds
    lacking = [torch_import.BUILDS[name] for name in needed if not getattr(build, name)]
    return ruled_out(
        verdict,
        Status.NO_DEVICE,
        Reason.TORCH_LACKS_BUILD,
        torch=build.version,
        build=build.kind,
        toolkits=lacking,
    )


def _check_visible_devices(verdict: Verdict, context: Context) -> Verdict | None:
    """Check that no variable hides every device.

    What a runtime makes of a malformed value, or of a number that no device has, only the
    runtime can tell.
    """
    backend = verdict.declaration
    if _is_running(verdict) or not set_variables(backend, os.environ):
        return None
    if masks(backend, os.environ).devices != ():
        return None
    environ = set_variables(backend, os.environ)
    return without_device(verdict, Reason.HIDDEN, root=context.root, environ=environ)


def _check_driver(verdict: Verdict, context: Context) -> Verdict | None:
    """Check that a device on the bus has a device node.

    If not, its driver is not loaded, or a container lacks it. Some drivers make their nodes
    at the first use.
    """
    backend, root = verdict.declaration, context.root
    if _is_running(verdict) or not _is_without_node(verdict, root):
        return None
    driver = backend.hardware.driver_file
    if driver and not hardware.path_exists(driver, root):
        return without_device(verdict, Reason.DRIVER_NOT_LOADED, root=root)
    from accel_core.hardware.placement import placement  # only if a node is missing

    has_nodes = backend.hardware.nodes or backend.hardware.shared_nodes
    place = placement(root)
    if has_nodes and place.container and place.step(backend):
        return without_device(verdict, Reason.NODES_WITHHELD, root=root)
    return None


def _is_without_node(verdict: Verdict, root: str) -> bool:
    """Whether the hardware is on the bus, and no device node of it exists."""
    declared = verdict.declaration.hardware
    if not declared.name or not verdict.seen or verdict.seen.nodes:
        return False
    return not bus.device_nodes(declared.shared_nodes, root)


def _check_requirements(verdict: Verdict, _context: Context) -> Verdict | None:
    """Check required distributions by their metadata; markers that do not apply pass."""
    for text in verdict.declaration.requires:
        try:
            name, installed, is_met = requirement(text)
        except (ValueError, RecursionError) as error:
            return ruled_out(
                replace(verdict, error=error),
                Status.INVALID,
                Reason.REQUIREMENT_MALFORMED,
                requirement=text,
                text=str(error),
            )
        if is_met:
            continue
        if installed is None:
            return ruled_out(
                verdict,
                Status.NOT_INSTALLED,
                Reason.DISTRIBUTION_NOT_INSTALLED,
                name=name,
                requirement=text,
            )
        return ruled_out(
            verdict,
            Status.INCOMPATIBLE,
            Reason.REQUIREMENT_NOT_MET,
            requirement=text,
            name=name,
            installed=installed,
        )
    return None


#: In this order; each rules the backend out, or passes with `None`.
CHECKS: tuple[Callable[[Verdict, Context], Verdict | None], ...] = (
    _check_policy,
    _check_declaration,
    _check_platform,
    _check_vendor_package,
    _check_release_of_torch,
    _check_namespace,
    _check_hardware,
    _check_build_of_torch,
    _check_visible_devices,
    _check_driver,
    _check_requirements,
)


# --- What several checks ask ------------------------------------------------------------


def _is_running(verdict: Verdict) -> bool:
    """Whether the device's runtime has started here: then files and variables are moot."""
    namespace = getattr(sys.modules.get("torch"), verdict.device_type, None)
    is_initialized = getattr(namespace, "is_initialized", None)
    if is_initialized is None:
        return False
    with suppress(Exception):  # a vendor's namespace may fail as its package did
        return bool(is_initialized())
    return False


def installed_imports(backend: Backend) -> list[str]:
    """Return the vendor imports whose package can be found, without importing it."""
    return [name for name in backend.vendor_imports if is_installed(name)]


def namespace_owner(backend: Backend) -> str:
    """Return the package that has taken over the backend's torch namespace; else empty.

    torch_supa, `torch_npu.contrib.transfer_to_npu` and torch_mlu's `gpu_migration` take
    over torch.cuda, which then reports a device that is not CUDA's. A package that takes it
    over below Python is recognised by its name only.
    """
    other = loaded_overtaker(backend)
    if other or backend.name == builtin.GENERIC.name:
        return other
    if backend.vendor_imports != ("torch",):
        return ""
    own = ("torch", *backend.in_torch.wrapped_by)
    return torch_import.namespace_taken_by(backend.device_type, own)


def loaded_overtaker(backend: Backend) -> str:
    """Return the first imported package of `InTorch.taken_over_by`; else empty."""
    for name in backend.in_torch.taken_over_by:
        if name in sys.modules:
            return name
    return ""


def with_hardware(verdict: Verdict, root: str = "/") -> Verdict:
    """Return the verdict with the signs of its hardware on this machine."""
    if verdict.backend is None:
        return verdict
    return replace(verdict, seen=bus.evidence(verdict.backend, root))


def can_be_broken(verdict: Verdict) -> bool:
    """Whether the device is missing, and the vendor's package is there and may not work."""
    if verdict.status is not Status.NO_DEVICE or verdict.backend is None:
        return False
    return installed_imports(verdict.backend) not in ([], ["torch"])


def is_count(number: object) -> bool:
    """Whether it is a number of devices that can be."""
    return type(number) is int and 0 <= number < 10**6


#: What `is_count` expects, for messages.
COUNT = "a number of devices from 0 to 999999"
