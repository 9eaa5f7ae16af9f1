"""Check a backend without importing torch or its vendor's package.

A check returns a verdict if it rules the backend out, and `None` otherwise. Cheap
checks run first. The check of version requirements costs more than all others together,
so it runs last.
"""

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from accel_core import builtin, hardware, torch_import
from accel_core.backend import Backend
from accel_core.hardware import bus
from accel_core.hardware.visible_devices import (
    read_visible_devices,
    visible_devices_variables,
)
from accel_core.packages import check_requirement, is_installed, version
from accel_core.settings import Pin, Settings
from accel_core.verdict import Reason, Status, Verdict, Why


@dataclass(frozen=True)
class Context:
    """The facts that a backend's checks need in addition to the backend's verdict."""

    settings: Settings
    #: The user asked for this backend by name, so it may be usable without a device.
    pinned: bool = False
    #: The folder below which `/proc`, `/sys` and `/dev` are read.
    root: str = "/"


def with_reason(
    verdict: Verdict, status: Status, reason: Reason, **facts: Any
) -> Verdict:
    """Return the verdict with the given status and reason."""
    return replace(verdict, status=status, why=Why(reason, facts))


def no_device_verdict(verdict: Verdict, reason: Reason, **facts: Any) -> Verdict:
    """Return the verdict that a backend lacks only a device, with the given reason."""
    result = with_reason(verdict, Status.NO_DEVICE, reason, **facts)
    return replace(result, devices=0)


class CheckResults(NamedTuple):
    """The verdicts that one backend's checks reached."""

    #: The verdict that excludes the backend, or `None` if the backend can be probed.
    excluding: Verdict | None
    #: The verdict that the device seems to be missing, or `None` if no check found
    #: that. This verdict alone does not exclude the backend.
    uncertain: Verdict | None


def run_checks(verdict: Verdict, context: Context) -> CheckResults:
    """Run a backend's checks in order until one of them excludes the backend.

    A missing device does not exclude a pinned backend. Missing device nodes do not
    exclude a backend that declares device nodes but no PCI ids, because drivers rename
    nodes and the vendor's package can count the devices.
    """
    uncertain: Verdict | None = None
    for check in CHECKS:
        result = check(verdict, context)
        if result is None:
            continue
        # A pin needs no device, and device nodes alone do not prove that it is missing.
        may_be_wrong = check is _check_hardware and _lacks_pci_ids(result)
        if result.lacks_device and (context.pinned or may_be_wrong):
            if uncertain is None:
                uncertain = result
            continue
        if context.pinned:
            result = _add_missing_hardware(result, context)
        return CheckResults(result, uncertain)
    return CheckResults(None, uncertain)


def _lacks_pci_ids(verdict: Verdict) -> bool:
    """Return whether the backend's declaration has no PCI ids."""
    return verdict.backend is None or not verdict.backend.hardware.pci_ids


def _add_missing_hardware(result: Verdict, context: Context) -> Verdict:
    """Mention the missing hardware in the verdict on a pin, if it is certain that the
    hardware is missing.

    The user's first step is then to use a machine that has the hardware.
    """
    if _lacks_pci_ids(result) or result.why is None:
        return result
    missing = _check_hardware(result, context)
    if missing is None:
        return result
    both_reasons = {"hardware": missing.why, "because": result.why}
    return replace(result, why=Why(Reason.NOR_HARDWARE, both_reasons))


# --- The checks -------------------------------------------------------------------------


def _check_policy(verdict: Verdict, context: Context) -> Verdict | None:
    settings = context.settings
    name, distribution = verdict.name, verdict.distribution
    if settings.permits(name, distribution):
        return None
    for rule in settings.block:
        if rule.matches(name, distribution):
            return _blocked_verdict(verdict, "ACCEL_BLOCK", rule)
    # No rule blocks the backend, so a rule that allows it is missing.
    return _blocked_verdict(verdict, "ACCEL_ALLOW", Pin(name))


def _blocked_verdict(verdict: Verdict, variable: str, rule: Pin) -> Verdict:
    return with_reason(
        verdict, Status.BLOCKED, Reason.BLOCKED, variable=variable, rule=str(rule)
    )


def _check_declaration(verdict: Verdict, _context: Context) -> Verdict | None:
    if verdict.backend is not None:
        return None
    # A verdict without a declaration already has the reason why there is none.
    return verdict


def _check_platform(verdict: Verdict, _context: Context) -> Verdict | None:
    platforms = verdict.declaration.hardware.platforms
    if hardware.platform_matches(platforms):
        return None
    return with_reason(
        verdict, Status.NO_DEVICE, Reason.OTHER_PLATFORM, platforms=platforms
    )


def _check_vendor_package(verdict: Verdict, _context: Context) -> Verdict | None:
    backend = verdict.declaration
    if installed_imports(backend):
        return None
    return with_reason(
        verdict,
        Status.NOT_INSTALLED,
        Reason.VENDOR_NOT_INSTALLED,
        modules=backend.vendor_imports,
        distributions=_other_missing_distributions(backend),
    )


def _other_missing_distributions(backend: Backend) -> list[str]:
    """Return the missing required distributions, except torch and the vendor's
    distribution.

    The vendor's distribution is known only from `same_version`. If that is empty, the
    result is empty too, because a missing distribution may be the vendor's.
    """
    vendor_distributions = backend.torch_integration.same_version
    if not vendor_distributions:
        return []  # A missing distribution may be the vendor's.
    missing = []
    for requirement in backend.requires:
        # For example "torch-npu" in "torch-npu>=2.6".
        leading_name = re.match(r"[\w.-]+", requirement)
        if leading_name is None:
            continue
        name = leading_name[0]
        is_other = name != "torch" and name not in vendor_distributions
        if is_other and version(name) is None:
            missing.append(name)
    return missing


def _check_release_of_torch(verdict: Verdict, _context: Context) -> Verdict | None:
    """Check that packages built for one minor torch release match the installed torch.

    Some of these packages end the process when they are imported with another torch
    release.
    """
    names = verdict.declaration.torch_integration.same_version
    if not names:
        return None
    build = torch_import.torch_build()
    if build is None:  # A later step reports that torch is missing.
        return None
    for name in names:
        installed = version(name)
        if installed is None:
            return with_reason(
                verdict,
                Status.NOT_INSTALLED,
                Reason.DISTRIBUTION_NOT_INSTALLED,
                name=name,
            )
        release = _minor_release(installed)
        if release != _minor_release(build.version):
            return with_reason(
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
    """Return the major and minor version of a release, such as `"2.8"` for
    `"2.8.10+xpu"`.
    """
    release, _, _local_version = text.partition("+")
    return ".".join(release.split(".")[:2])


def _check_namespace(verdict: Verdict, _context: Context) -> Verdict | None:
    owner = namespace_owner(verdict.declaration)
    if not owner:
        return None
    return with_reason(verdict, Status.DEFERRED, Reason.NAMESPACE_TAKEN, by=owner)


def _check_hardware(verdict: Verdict, context: Context) -> Verdict | None:
    """Check for signs of the backend's device.

    This check precedes the check of torch's build, because a user without the device
    does not need another build of torch.
    """
    is_searchable = verdict.hardware_signs is not None
    if not is_searchable or verdict.hardware_signs or _is_running(verdict):
        return None
    builds = verdict.declaration.torch_integration.builds
    # If torch is built for the missing device, the reason names that build.
    torch_version = build_kind = ""
    build = torch_import.torch_build() if builds else None
    if build is not None and build.has_any(builds):
        torch_version, build_kind = build.version, build.kind
    return no_device_verdict(
        verdict,
        Reason.NO_HARDWARE,
        torch=torch_version,
        build=build_kind,
        root=context.root,
    )


def _check_build_of_torch(verdict: Verdict, _context: Context) -> Verdict | None:
    """Check that torch was built for the toolkit that the backend needs.

    If torch has no build for the device type, the verdict lists every toolkit of the
    device type, as in "without CUDA and ROCm".
    """
    backend = verdict.declaration
    builds = backend.torch_integration.builds
    if not builds:  # The device needs no special build of torch.
        return None
    build = torch_import.torch_build()
    if build is None or build.has_any(builds):
        return None
    possible = ("cuda", "hip") if backend.device_type == "cuda" else builds
    lacking = []
    for name in possible:
        if not getattr(build, name):
            lacking.append(torch_import.BUILDS[name])
    return with_reason(
        verdict,
        Status.NO_DEVICE,
        Reason.TORCH_LACKS_BUILD,
        torch=build.version,
        build=build.kind,
        toolkits=lacking,
    )


def _check_visible_devices(verdict: Verdict, context: Context) -> Verdict | None:
    """Check that no variable hides every device.

    Malformed values and numbers of missing devices pass, because only the vendor's
    runtime interprets them.
    """
    backend = verdict.declaration
    variables = visible_devices_variables(backend, os.environ)
    if not variables or _is_running(verdict):
        return None
    hides_every_device = read_visible_devices(backend, os.environ).devices == ()
    if not hides_every_device:
        return None
    return no_device_verdict(
        verdict, Reason.HIDDEN, root=context.root, environ=variables
    )


def _check_driver(verdict: Verdict, context: Context) -> Verdict | None:
    """Check that a device on the bus has a device node.

    A node is missing if the driver is not loaded, or if the container was started
    without the device. Some drivers create their nodes at the first use.
    """
    backend, root = verdict.declaration, context.root
    if _is_running(verdict) or not _is_on_bus_without_node(verdict, root):
        return None
    driver = backend.hardware.driver_file
    if driver and not hardware.path_exists(driver, root):
        return no_device_verdict(verdict, Reason.DRIVER_NOT_LOADED, root=root)
    # Imported here because few machines lack a node.
    from accel_core.hardware.placement import detect_placement

    declares_nodes = backend.hardware.nodes or backend.hardware.shared_nodes
    place = detect_placement(root)
    if declares_nodes and place.container and place.can_provide_devices(backend):
        return no_device_verdict(verdict, Reason.NODES_WITHHELD, root=root)
    return None


def _is_on_bus_without_node(verdict: Verdict, root: str) -> bool:
    """Return whether the hardware is on the bus but has no device node."""
    declared = verdict.declaration.hardware
    if not declared.name or not verdict.hardware_signs or verdict.hardware_signs.nodes:
        return False
    return not bus.device_nodes(declared.shared_nodes, root)


def _check_requirements(verdict: Verdict, _context: Context) -> Verdict | None:
    """Check the required distributions by their metadata. A requirement passes if its
    marker does not apply.
    """
    for text in verdict.declaration.requires:
        try:
            requirement = check_requirement(text)
        except (ValueError, RecursionError) as error:
            return with_reason(
                replace(verdict, error=error),
                Status.INVALID,
                Reason.REQUIREMENT_MALFORMED,
                requirement=text,
                text=str(error),
            )
        if requirement.is_met:
            continue
        if requirement.installed is None:
            return with_reason(
                verdict,
                Status.NOT_INSTALLED,
                Reason.DISTRIBUTION_NOT_INSTALLED,
                name=requirement.name,
                requirement=text,
            )
        return with_reason(
            verdict,
            Status.INCOMPATIBLE,
            Reason.REQUIREMENT_NOT_MET,
            requirement=text,
            name=requirement.name,
            installed=requirement.installed,
        )
    return None


#: The checks, in the order in which they run.
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


# --- Queries that several checks share --------------------------------------------------


def _is_running(verdict: Verdict) -> bool:
    """Return whether the device's runtime has started in this process, after which
    files and variables have no effect.
    """
    torch = sys.modules.get("torch")
    namespace: Any = getattr(torch, verdict.device_type, None)
    if not hasattr(namespace, "is_initialized"):
        return False
    with suppress(Exception):  # The vendor's namespace may be broken.
        return bool(namespace.is_initialized())
    return False


def installed_imports(backend: Backend) -> list[str]:
    """Return which of the backend's vendor imports are installed, without importing any of them."""
    return [name for name in backend.vendor_imports if is_installed(name)]


def namespace_owner(backend: Backend) -> str:
    """Return the name of the package that has taken over the backend's torch namespace,
    or an empty string if there is none.

    torch_supa, `torch_npu.contrib.transfer_to_npu` and torch_mlu's `gpu_migration` take
    over torch.cuda, which then reports a device that is not an NVIDIA GPU. A package
    that replaces torch.cuda below the level of Python is recognized only by its name.
    """
    overtaker = imported_overtaker(backend)
    if overtaker or backend.name == builtin.GENERIC.name:
        return overtaker
    if backend.vendor_imports != ("torch",):
        return ""
    own_packages = ("torch", *backend.torch_integration.wrapped_by)
    return torch_import.namespace_taken_by(backend.device_type, own_packages)


def imported_overtaker(backend: Backend) -> str:
    """Return the first imported package of `TorchIntegration.taken_over_by`, or an
    empty string if none is imported.
    """
    for name in backend.torch_integration.taken_over_by:
        if name in sys.modules:
            return name
    return ""


def with_evidence(verdict: Verdict, root: str = "/") -> Verdict:
    """Return the verdict, with evidence of the backend's hardware on this machine added."""
    if verdict.backend is None:
        return verdict
    return replace(verdict, hardware_signs=bus.evidence(verdict.backend, root))


def may_have_broken_package(verdict: Verdict) -> bool:
    """Return whether the device is missing and the vendor's package is installed. Such a
    package may also be broken.
    """
    if verdict.status is not Status.NO_DEVICE or verdict.backend is None:
        return False
    installed = installed_imports(verdict.backend)
    return any(module != "torch" for module in installed)


def is_device_count(number: object) -> bool:
    """Return whether `number` is a plausible number of devices: an `int` from 0 to
    999999.
    """
    return type(number) is int and 0 <= number < 10**6


#: The values that `is_device_count` accepts, in words, for messages.
EXPECTED_COUNT = "a number of devices from 0 to 999999"
