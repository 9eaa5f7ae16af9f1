"""Simulate a device that only an installed plugin declares, by giving `acme` the names in the declaration.

`accel simulate` and `pytest --accel` read the declaration, and pass it to the processes that they start in
the variable `ACCEL_SIMULATE_DECLARED`. The simulation begins when Python starts, before plugins can be read.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder, distributions
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from accel_simulated.vendors import DEVICES, ROOT, Vendor

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from accel_core import Backend

__all__ = [
    "VARIABLE",
    "DeclaredDevice",
    "find",
    "find_all",
    "from_environment",
    "install",
    "known_vendors",
]

VARIABLE = "ACCEL_SIMULATE_DECLARED"
#: The module `torch.acme`, which is also loaded under the declared name.
_ACME_MODULE = ROOT / "runtimes" / "acme" / "torch_acme" / "acme.py"
_SIMULATED_VERSION = "0.1+simulated"
#: Simulated devices whose names a plugin may reuse for its own device.
_FICTIONAL_DEVICES = ("acme", "plain")


class DeclaredDevice:
    """A device that an installed plugin declares, with the parts of the declaration needed to simulate it."""

    def __init__(
        self, backend: str, vendor: Vendor, distributions: Mapping[str, str]
    ) -> None:
        #: The backend's name, which may differ from torch's device type, `vendor.name`.
        self.backend = backend
        self.vendor = vendor
        #: The distributions to simulate, each with its version (see `_distributions_to_simulate`).
        self.distributions = distributions

    def to_json(self) -> str:
        """Return the device as JSON, in the form stored in `ACCEL_SIMULATE_DECLARED`."""
        return json.dumps(
            [
                self.backend,
                self.vendor.name,
                self.vendor.package,
                self.vendor.collective,
                self.vendor.visible,
                dict(self.distributions),
            ]
        )


def find(name: str) -> DeclaredDevice | None:
    """Return the device that an installed plugin declares for the backend `name`, or `None`.

    The result is `None` if there is no such device, or if the device cannot be simulated. A device can be
    simulated if all of these conditions hold:

    - the device type is torch's PrivateUse1 under another name;
    - the device comes from a package other than torch;
    - accel-simulated does not have its own simulation of the device;
    - the accelerator class imports only modules of the vendor's package that the simulation provides.

    The function imports the plugins' modules, which have no side effects on import. It raises `SettingError`
    in the same cases as `accel_core.discover`.
    """
    from accel_core import packages
    from accel_core.backend import ENTRY_POINT_GROUP

    # The metadata is read first: importing a plugin would write a cache file, and an image may be read-only.
    entry_points = packages.entry_points(ENTRY_POINT_GROUP)
    is_declared = any(entry_point.name == name for entry_point in entry_points)
    # A plugin may declare a device under the name of a fictional device, such as acme.
    reuses_fictional_name = is_declared and name in _FICTIONAL_DEVICES
    if name in DEVICES and not reuses_fictional_name:
        return None  # accel-simulated has its own simulation of the device
    for device in find_all():
        if device.backend == name:
            return device
    return None


def find_all() -> Iterator[DeclaredDevice]:
    """Yield every device that an installed plugin declares and that can be simulated.

    Raises the same errors as `find`.
    """
    from accel_core import discover

    for candidate in discover(isolated=True):
        if candidate.backend is not None:
            device = _device_from_declaration(candidate.backend)
            if device is not None:
                yield device


def _device_from_declaration(backend: Backend) -> DeclaredDevice | None:
    """Return the declared device, or `None` if it cannot be simulated by the rules of `find`."""
    package = backend.vendor_imports[0]
    device_type = backend.device_type
    if not backend.torch_integration.private_use1 or package == "torch":
        return None
    if _is_already_simulated(backend):
        return None
    simulated_modules = {package, f"{package}.{device_type}"}
    imported_names = _imported_names(backend.accelerator, package)
    if not imported_names <= simulated_modules:
        return None  # the accelerator class needs modules that the simulation lacks
    # torch.distributed requires a name, also for a plugin that declares none.
    collective = backend.communication_backend or f"{device_type}_simulated"
    variables = backend.visibility.variables
    vendor = _make_vendor(device_type, package, collective, variables)
    return DeclaredDevice(backend.name, vendor, _distributions_to_simulate(backend))


def _is_already_simulated(backend: Backend) -> bool:
    """Return whether accel-simulated has its own complete simulation of the declared backend."""
    vendor = DEVICES.get(backend.name)
    if vendor is None:
        return False
    if vendor.name != backend.device_type:
        return False
    if vendor.package != backend.vendor_imports[0]:
        return False
    # accel-simulated's own simulation of a fictional device reads no visible-devices variables.
    needs_variables = len(backend.visibility.variables) > 0
    needs_declaration = needs_variables and backend.name in _FICTIONAL_DEVICES
    return not needs_declaration


def from_environment(
    environ: Mapping[str, str] | None = None,
) -> DeclaredDevice | None:
    """Return the device in `ACCEL_SIMULATE_DECLARED`, which the parent process sets as JSON.

    Returns `None` if the variable is not set or its value is invalid.
    """
    env = os.environ if environ is None else environ
    try:
        fields = json.loads(env.get(VARIABLE, ""))
        backend, name, package, collective, variables, distributions = fields
        vendor = _make_vendor(name, package, collective, variables)
        return DeclaredDevice(backend, vendor, dict(distributions))
    except (ValueError, TypeError):
        return None


def known_vendors(environ: Mapping[str, str] | None = None) -> dict[str, Vendor]:
    """Return the vendors that a process can simulate, by torch device type.

    `environ` is the environment of that process, by default the environment of the current process.
    """
    device = from_environment(environ)
    if device is None:
        return DEVICES
    return {**DEVICES, device.vendor.name: device.vendor}


def install(device: DeclaredDevice) -> None:
    """Make the declared device's vendor package and required distributions available to this process.

    The package becomes importable, and `importlib.metadata` finds the distributions.
    """
    sys.meta_path.insert(0, _Finder(device))


def _imported_names(accelerator: str, package: str) -> set[str]:
    """Return the dotted names that an accelerator class's module imports from `package`.

    `accelerator` is the class in the form `"module:Class"`. The module's source is parsed, because importing
    the module would import torch.
    """
    module, _, _ = accelerator.partition(":")
    names: set[str] = set()
    for node in ast.walk(ast.parse(_read_source(module))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in names if name == package or name.startswith(f"{package}.")}


def _read_source(module: str) -> bytes:
    """Return the source of a package's submodule without importing it, or empty bytes if it is not found."""
    package, *submodule_parts = module.split(".")
    spec = PathFinder.find_spec(package)
    if spec is None or not spec.submodule_search_locations or not submodule_parts:
        return b""
    folder = spec.submodule_search_locations[0]
    source = Path(folder, *submodule_parts).with_suffix(".py")
    if not source.is_file():
        return b""
    return source.read_bytes()


def _make_vendor(
    device_type: str, package: str, collective: str, variables: Iterable[str]
) -> Vendor:
    """Return a vendor with the names that a plugin declares."""
    return Vendor(
        name=device_type,
        description="a device that an installed plugin declares",
        package=package,
        collective=collective,
        visible=tuple(variables),
    )


def _distributions_to_simulate(backend: Backend) -> dict[str, str]:
    """Return the required distributions that are not installed, each with a version.

    The requirement accepts the version if `_accepted_version` finds such a version. Distributions that must
    have torch's version are always included, with that version.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    versions_to_simulate: dict[str, str] = {}
    # These distributions must have the same version as torch.
    for name in backend.torch_integration.same_version:
        versions_to_simulate[name] = _installed_version("torch")
    for text in backend.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # accel-core reports the invalid requirement
            continue
        if not _installed_version(requirement.name):
            versions_to_simulate[requirement.name] = _accepted_version(requirement)
    return versions_to_simulate


def _installed_version(name: str) -> str:
    """Return the version of the distribution `name`, or an empty string if it is not installed."""
    for distribution in distributions(name=name):
        return distribution.version
    return ""


def _accepted_version(requirement: Requirement) -> str:
    """Return a version that satisfies the requirement, or 0.1+simulated if no tried version does."""
    # The bounds of `>=2.7,<3` are 2.7 and 3.
    bounds = [part.version.removesuffix(".*") for part in requirement.specifier]
    # `>=2.7` accepts its bound; `>2.7` accepts 2.7.1.
    above_bounds = [f"{bound}.1" for bound in bounds]
    for version in (_SIMULATED_VERSION, *bounds, *above_bounds):
        if requirement.specifier.contains(version):
            return version
    return _SIMULATED_VERSION


class _Finder(DistributionFinder):
    """A finder for the vendor's package, its parent packages, and the metadata of required distributions."""

    def __init__(self, device: DeclaredDevice) -> None:
        self._vendor = device.vendor
        self._distributions = device.distributions

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        package = self._vendor.package
        is_parent_package = package.startswith(f"{fullname}.")
        if fullname == package or is_parent_package:
            return ModuleSpec(
                fullname,
                _Loader(self._vendor),
                origin="accel-simulated",
                is_package=True,
            )
        if fullname == f"{package}.{self._vendor.name}":
            # The device's module is a copy of the fictional vendor acme's module.
            return spec_from_file_location(fullname, _ACME_MODULE)
        return None

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        requested_name = getattr(context, "name", None)  # None: every distribution
        for name, version in self._distributions.items():
            if requested_name is None or _normalize(requested_name) == _normalize(name):
                yield _Distribution(name, version)


class _Loader(Loader):
    """An import loader that creates the vendor's package and registers the device with torch."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ != self._vendor.package:
            return  # the module is a parent package, which stays empty
        from accel_simulated import vendor_package

        module.__version__ = _SIMULATED_VERSION  # type: ignore[attr-defined]
        vendor_package.load_device(self._vendor.name)
        vendor_package.register_module(
            importlib.import_module(f"{module.__name__}.{self._vendor.name}")
        )


class _Distribution(Distribution):
    """A distribution that consists only of metadata: a name and a version."""

    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename in ("METADATA", "PKG-INFO") else None

    def locate_file(self, path: Any) -> Path:
        return Path(path)


def _normalize(name: str) -> str:
    """Return a distribution's name in lower case, with dashes."""
    return name.lower().replace("_", "-")
