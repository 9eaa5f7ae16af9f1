"""The built-in backends: the CPU, and devices that no plugin declares.

While torch is imported, its autoload imports every package in torch's entry-point
group, even if another device is chosen. If accel_core is the first to import torch, it
turns the autoload off. Each package that no plugin declares is then a separate
candidate called `generic`, and only the chosen candidate is loaded.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from accel_core import __version__, errors, torch_import
from accel_core.backend import Backend, Provenance, is_device_type
from accel_core.exceptions import PLUGIN_ERRORS
from accel_core.packages import normalize_distribution
from accel_core.sandbox.guard import log_step
from accel_core.settings import OWN_DISTRIBUTIONS, Pin, permitted_entry_points
from accel_core.text import one_line
from accel_core.verdict import Reason, Status, Verdict, Why

CPU = Backend(
    name="cpu",
    priority=0,
    device_type="cpu",
    accelerator="accel_core.interface.cpu:CPUAccelerator",
    description="the CPU, through torch.cpu",
    install_hint="accel setup cpu",
    communication_backend="gloo",
)

GENERIC = Backend(
    name="generic",
    priority=100,
    device_type=torch_import.FREE_SLOT,  # replaced by the type that torch reports
    accelerator="accel_core.interface.torch_device:GenericAccelerator",
    description="an accelerator that torch reports and no installed plugin declares",
    install_hint="accel setup",
)

#: The provenance of the built-in backends.
OWN = Provenance("accel-core", __version__)


# --- Built-in backends ------------------------------------------------------------------


def builtin_verdicts() -> tuple[Verdict, ...]:
    """Return unprobed verdicts on the two built-in backends: the CPU, and `generic` for a
    device that torch supports without another package.
    """
    return (_builtin_verdict(CPU, OWN), _builtin_verdict(GENERIC, OWN))


def generic_verdicts(backends: Iterable[Backend]) -> tuple[Verdict, ...]:
    """Return an unprobed verdict on `generic` for each package that torch autoloads and
    that none of `backends` declares.
    """
    return tuple(
        _builtin_verdict(GENERIC, package) for package in undeclared_packages(backends)
    )


def generic_for_distribution(pin: Pin) -> tuple[Verdict, ...]:
    """Return the backends that the pin `generic@DISTRIBUTION` selects.

    The pin can also select a package that a plugin declares.
    """
    verdicts = []
    for package in autoload_packages():
        if pin.matches(GENERIC.name, package.distribution):
            verdicts.append(_builtin_verdict(GENERIC, package))
    return tuple(verdicts)


def generic_for_device_type(pin: Pin) -> tuple[Verdict, ...]:
    """Return `generic` for the torch device type `pin.name`, which no plugin declares.

    Either a package named after the device type adds the device, or torch already has
    it. The result is empty for a device type with a first-party plugin, because the
    user only needs to install that plugin.
    """
    has_first_party_plugin = f"accel-{pin.name}" in OWN_DISTRIBUTIONS
    if has_first_party_plugin or not is_device_type(pin.name):
        return ()
    backend = replace(GENERIC, device_type=pin.name)
    verdicts = []
    for package in packages_named_after(pin.name):
        distribution = normalize_distribution(package.distribution)
        if pin.distribution in ("", distribution):
            verdicts.append(_builtin_verdict(backend, package))
    if not verdicts and not pin.distribution and _has_torch_device(pin.name):
        verdicts.append(_builtin_verdict(backend, OWN))
    return tuple(verdicts)


def _has_torch_device(device_type: str) -> bool:
    """Return whether torch is imported and its accelerator has this device type."""
    if "torch" not in sys.modules:
        return False
    device = current_torch_device()
    return device is not None and device.type == device_type


def _builtin_verdict(backend: Backend, source: Provenance) -> Verdict:
    declared = replace(backend, provenance=source)
    return Verdict(backend.name, source, declared, builtin=True)


def autoload_packages() -> list[Provenance]:
    """Return the packages that torch's autoload imports, in torch's order.

    The result leaves out accel-train's entry point, which adds no device. It also
    leaves out distributions that `ACCEL_BLOCK` blocks as a whole: torch imports them,
    but accel-core does not.
    """
    packages = []
    for entry_point in permitted_entry_points(torch_import.TORCH_GROUP):
        key = (entry_point.name, entry_point.distribution)
        is_of_accel_train = key == torch_import.OWN_ENTRY_POINT
        if not is_of_accel_train:
            packages.append(entry_point)
    return packages


def packages_named_after(device_type: str) -> list[Provenance]:
    """Return the autoloaded packages that are named after a torch device type.

    Either the entry point has the device type's name, as torch's documentation
    recommends, or the package does, such as `torch_foo` for `foo`.
    """
    packages = []
    for package in autoload_packages():
        names = (package.name.lower(), package.top.removeprefix("torch_"))
        if device_type in names:
            packages.append(package)
    return packages


def undeclared_packages(backends: Iterable[Backend]) -> list[Provenance]:
    """Return the packages that torch's autoload imports and that none of `backends`
    declares.
    """
    declarations = tuple(backends)
    packages = []
    for package in autoload_packages():
        if not names_of_declaring_backends(package, declarations):
            packages.append(package)
    return packages


def names_of_declaring_backends(
    package: Provenance, backends: Iterable[Backend]
) -> list[str]:
    """Return the names of the backends whose vendor import belongs to the package."""
    names = []
    for backend in backends:
        if package.top in _top_level_packages(backend):
            names.append(backend.name)
    return names


def _top_level_packages(backend: Backend) -> set[str]:
    """Return the top-level packages of the backend's vendor imports."""
    return {module.partition(".")[0] for module in backend.vendor_imports}


def package_of_generic(backend: Backend) -> Provenance | None:
    """Return the package that adds a `generic` backend's device, or `None` for any
    other backend.
    """
    source = backend.provenance
    if backend.name != GENERIC.name or source is None:
        return None
    # Without an entry point, torch itself has the device.
    has_entry_point = bool(source.value)
    return source if has_entry_point else None


# --- Verdicts on built-in backends ------------------------------------------------------


def verdict_without_import(
    verdict: Verdict, other_backends: tuple[Backend, ...]
) -> Verdict | None:
    """Probe a built-in backend without importing torch or a vendor's package. Return
    `None` if the verdict needs an import.

    The CPU needs no import, because an earlier check found that torch is installed.
    """
    backend = verdict.declaration
    if backend.name == CPU.name:
        return replace(verdict, status=Status.USABLE)
    package = package_of_generic(backend)
    if package is not None:
        return _deferred_if_declared(verdict, package, other_backends)
    if os.environ.get(torch_import.IMPORTED):
        # A package that ACCEL_IMPORT names may add a device when it is imported.
        return None
    if sys.modules.get("torch") is None:
        return _verdict_by_torch_build(verdict, other_backends)
    if current_torch_device() is None:
        return replace(verdict, status=Status.NO_DEVICE, why=Why(Reason.TORCH_HAS_NONE))
    return None  # torch has a device, which the probe must examine.


def _deferred_if_declared(
    verdict: Verdict, package: Provenance, other_backends: tuple[Backend, ...]
) -> Verdict | None:
    declaring_backends = names_of_declaring_backends(package, other_backends)
    if not declaring_backends:
        return None
    first_backend = declaring_backends[0]
    why = Why(Reason.DECLARED_BY, {"backends": [first_backend]})
    return replace(verdict, status=Status.DEFERRED, why=why)


def _verdict_by_torch_build(
    verdict: Verdict, other_backends: tuple[Backend, ...]
) -> Verdict | None:
    """Return the verdict that follows from the devices for which torch was built,
    without importing torch.
    """
    build = torch_import.torch_build()
    built_for = _device_types_of(build)
    declared_types = {other.device_type for other in other_backends}
    if not declared_types.issuperset(built_for):
        # torch may have a device that no plugin declares. Only an import can show that.
        return None
    if built_for:
        why = Why(Reason.DECLARED_BY, {"device_type": ", ".join(built_for)})
        return replace(verdict, status=Status.DEFERRED, why=why)
    # torch itself has no device. The reason names the packages that could add one.
    declared_packages = []
    has_undeclared_package = False
    for package in autoload_packages():
        declaring_backends = names_of_declaring_backends(package, other_backends)
        if declaring_backends:
            first_backend = declaring_backends[0]
            declared_packages.append(f"{package.distribution}: {first_backend}")
        else:
            has_undeclared_package = True
    facts = {
        "torch": str(build or "torch"),
        "claims": declared_packages,
        "undeclared": has_undeclared_package,
    }
    return replace(
        verdict, status=Status.NO_DEVICE, why=Why(Reason.TORCH_HAS_NONE, facts)
    )


def _device_types_of(build: torch_import.TorchBuild | None) -> list[str]:
    """Return the device types that torch was built for on this platform."""
    device_types = []
    if build is not None and (build.cuda or build.hip):
        device_types.append("cuda")
    if build is not None and build.xpu:
        device_types.append("xpu")
    if sys.platform == "darwin":
        device_types.append("mps")
    return device_types


def with_torch_device_type(
    backend: Backend, other_backends: tuple[Backend, ...]
) -> Backend:
    """Load a `generic` backend's package, and return the declaration with the device
    type that the package registers.

    The CPU's declaration is returned unchanged. Raises `DeclinedError` if torch has no
    such device or another backend declares the device. Raises `BackendUnavailableError`
    if the package fails, or if the package registers a device type other than the
    pinned one.
    """
    if backend.name == CPU.name:
        return backend
    package = package_of_generic(backend)
    if package is not None and package.top not in sys.modules:
        require_free_slot(backend, other_backends)
        load_like_torch(package)
    device = current_torch_device()
    if device is None:
        raise _no_device_error(package)
    _require_undeclared(device.type, other_backends)
    # Without a pinned type, `generic` declares the name of torch's free slot.
    is_type_pinned = backend.device_type != torch_import.FREE_SLOT
    if is_type_pinned and backend.device_type != device.type:
        raise _other_type_error(backend, package, device.type)
    if package is None and not is_type_pinned:
        _require_no_separate_backend(device.type, other_backends)
    return replace(backend, device_type=device.type)


def _no_device_error(package: Provenance | None) -> errors.DeclinedError:
    if package is None:
        return errors.DeclinedError("torch reports no accelerator")
    return errors.DeclinedError(f"{package} registers no device with torch")


def _require_undeclared(device_type: str, other_backends: tuple[Backend, ...]) -> None:
    """Raise `DeclinedError` if a backend in `other_backends` declares the device type."""
    for other in other_backends:
        if other.device_type == device_type:
            reason = (
                f"torch's accelerator is {device_type}, which {other.name} declares"
            )
            raise errors.DeclinedError(reason, deferred=True)


def _other_type_error(
    backend: Backend, package: Provenance | None, device_type: str
) -> errors.BackendUnavailableError:
    pinned_type = backend.device_type
    if package is None:
        reason = f"torch has the device type {device_type!r}, not {pinned_type!r}"
        return errors.BackendUnavailableError(reason)
    reason = f"{package} registers the device type {device_type!r}, not {pinned_type!r}"
    hint = f"set DS_ACCELERATOR={pin_of(package)}"
    return errors.BackendUnavailableError(reason, hint=hint)


def _require_no_separate_backend(
    device_type: str, other_backends: tuple[Backend, ...]
) -> None:
    """Raise `DeclinedError` if an imported package added the device, because that
    package has a separate backend.
    """
    if device_type != torch_import.private_use1_name():
        return
    for package in undeclared_packages(other_backends):
        if package.top in sys.modules:
            reason = f"{package} adds {device_type} to torch"
            raise errors.DeclinedError(reason, deferred=True)


def load_like_torch(package: Provenance) -> None:
    """Load one package as torch's autoload does.

    Raises `BackendUnavailableError` if the package fails. The error names the package's
    distribution, because the package breaks every `import torch` in this environment.
    """
    log_step(f"importing {package.value} ({package})")
    try:
        register_device = package.load()
        register_device()
    except PLUGIN_ERRORS as error:
        raise autoload_failure(package, error) from error


def autoload_failure(
    package: Provenance, error: BaseException
) -> errors.BackendUnavailableError:
    """Return the error to raise for a package that fails when torch loads it."""
    cause, _ = torch_import.cause_and_step(error)
    place = f"{torch_import.TORCH_GROUP}: {package.name} = {package.value}"
    reason = one_line(f"{package} fails when torch loads it ({place}): {cause}")
    hint = f"`import torch` fails because of this package: {remedy(package)}"
    return errors.BackendUnavailableError(reason, hint=hint)


def remedy(package: Provenance) -> str:
    """Return advice on how to keep `import torch` from loading a package."""
    return f"pip uninstall {package.distribution}, or set {torch_import.AUTOLOAD}=0"


def current_torch_device() -> Any:
    """Return the device of torch's current accelerator, or `None` if torch has no accelerator."""
    from accel_core.interface.devices import current_torch_accelerator

    return current_torch_accelerator(torch_import.import_torch())


def pin_of(package: Provenance) -> str:
    """Return the pin that selects the device that `package` adds."""
    return f"{GENERIC.name}@{package.distribution}"


# --- torch's one PrivateUse1 slot -------------------------------------------------------


def may_use_private_use1(backend: Backend) -> bool:
    """Return whether the backend's device may use torch's PrivateUse1 slot. A process
    has one such slot.
    """
    return (
        backend.torch_integration.private_use1
        or package_of_generic(backend) is not None
    )


def require_free_slot(backend: Backend, other_backends: tuple[Backend, ...]) -> None:
    """Raise `BackendUnavailableError` if another device holds the PrivateUse1 slot in
    this process.

    torch allows only one name for the slot.
    """
    holder = torch_import.private_use1_name()
    if holder not in (torch_import.FREE_SLOT, backend.device_type):
        raise slot_taken_error(backend, other_backends, holder)


def slot_taken_error(
    backend: Backend, other_backends: tuple[Backend, ...], holder: str
) -> errors.BackendUnavailableError:
    """Return the error to raise if another device, `holder`, already uses torch's
    PrivateUse1 slot. The error includes a next step.
    """
    package = package_of_generic(backend)
    pin = backend.name if package is None else pin_of(package)
    pin_step = f"set DS_ACCELERATOR={pin}"
    distributions = _autoloaded_distributions_for(holder, other_backends)
    is_autoloaded = torch_import.autoload_is_on() and not torch_import.imported_by_us
    if distributions and is_autoloaded:
        subject = " and ".join(distributions)
        no_autoload = f"{torch_import.AUTOLOAD}=0"
        hint = (
            f"{pin_step} and {no_autoload} before Python starts, because `import torch` "
            f"loads {subject}"
        )
    else:
        hint = f"{pin_step} before Python starts, and do not import the package of {holder}"
    reason = f"torch's one PrivateUse1 slot is held by {holder} in this process"
    return errors.BackendUnavailableError(reason, hint=hint)


def _autoloaded_distributions_for(
    device_type: str, other_backends: tuple[Backend, ...]
) -> list[str]:
    """Return the autoloaded distributions that may have registered the device type.

    These are the distributions of the backends that declare the device type, or all
    autoloaded distributions if no backend in `other_backends` declares it.
    """
    declared_packages = set()
    for other in other_backends:
        if other.device_type == device_type:
            declared_packages |= _top_level_packages(other)
    distributions = []
    for package in autoload_packages():
        if not declared_packages or package.top in declared_packages:
            distributions.append(package.distribution)
    return distributions
