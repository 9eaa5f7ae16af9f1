"""Simulate a device that only an installed plugin declares, by giving `acme` the declared names.

`accel simulate` and `pytest --accel` read the declaration, and pass it to the processes that they start, in
the variable `ACCEL_SIMULATE_DECLARED`. The simulation begins at Python's start, when plugins cannot be read
yet.
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
_MODULE = ROOT / "runtimes" / "acme" / "torch_acme" / "acme.py"
_VERSION = "0.1+simulated"
#: Simulated devices whose names a plugin may reuse for its own device.
_FICTIONAL = ("acme", "plain")


class DeclaredDevice:
    """The part of a plugin's declaration that the simulation needs."""

    def __init__(
        self, backend: str, vendor: Vendor, distributions: Mapping[str, str]
    ) -> None:
        #: The backend's name, which may differ from torch's device type, `vendor.name`.
        self.backend = backend
        self.vendor = vendor
        #: The versions of the distributions, other than torch, that the declaration requires.
        self.distributions = distributions

    def __str__(self) -> str:
        """Return the text for `VARIABLE`, which `from_environment` parses."""
        vendor = self.vendor
        values = [vendor.name, vendor.package, vendor.collective, vendor.visible]
        return json.dumps([self.backend, *values, dict(self.distributions)])


def find(name: str) -> DeclaredDevice | None:
    """Return the device that an installed plugin declares as the backend `name`; `None` if no plugin does.

    The declaration must fit the simulation of `acme`:

    - torch has the device by renaming PrivateUse1;
    - the vendor's package is not torch;
    - this package does not simulate the device itself;
    - the accelerator's class imports only the modules of the vendor's package that the simulation has.

    Imports the plugins' modules, whose imports have no side effects. Raises `SettingError` in the same cases
        as `accel_core.discover`.
    """
    from accel_core import packages
    from accel_core.backend import ENTRY_POINT_GROUP

    # By metadata, without an import, which would write a cache file: an image may be read-only.
    entry_points = packages.entry_points(ENTRY_POINT_GROUP)
    is_declared = any(entry_point.name == name for entry_point in entry_points)
    if name in DEVICES and not (name in _FICTIONAL and is_declared):
        return None
    for device in find_all():
        if device.backend == name:
            return device
    return None


def find_all() -> Iterator[DeclaredDevice]:
    """Yield every device that `find` would return. Raises the errors of `find`."""
    from accel_core import discover

    for candidate in discover(isolated=True):
        if candidate.backend is not None:
            device = _device_of(candidate.backend)
            if device is not None:
                yield device


def _device_of(backend: Backend) -> DeclaredDevice | None:
    """Return the declared device, if the declaration fits as `find` requires; otherwise `None`."""
    package = backend.vendor_imports[0]
    device_type = backend.device_type
    if not backend.torch_integration.private_use1 or package == "torch":
        return None
    if _is_simulated_here(backend):
        return None
    simulated_modules = {package, f"{package}.{device_type}"}
    if _imports(backend.accelerator, package) - simulated_modules:
        return None
    # torch.distributed needs a name. If the plugin declares none, no program requests this one.
    collective = backend.communication_backend or f"{device_type}_simulated"
    variables = backend.visibility.variables
    vendor = _declared_vendor(device_type, package, collective, variables)
    return DeclaredDevice(backend.name, vendor, _missing_distributions(backend))


def _is_simulated_here(backend: Backend) -> bool:
    """Return whether this package already simulates the backend with everything that is declared."""
    vendor = DEVICES.get(backend.name)
    if vendor is None:
        return False
    names = (backend.device_type, backend.vendor_imports[0])
    if (vendor.name, vendor.package) != names:
        return False
    # The visible-devices variables of a fictional device are known only from the declaration.
    return not (backend.visibility.variables and backend.name in _FICTIONAL)


def from_environment(
    environ: Mapping[str, str] | None = None,
) -> DeclaredDevice | None:
    """Parse `ACCEL_SIMULATE_DECLARED`, which the parent process sets; `None` if missing or invalid."""
    env = os.environ if environ is None else environ
    try:
        backend, name, package, collective, visible, versions = json.loads(
            env.get(VARIABLE, "")
        )
        vendor = _declared_vendor(name, package, collective, visible)
        return DeclaredDevice(backend, vendor, dict(versions))
    except (ValueError, TypeError):
        return None


def known_vendors(environ: Mapping[str, str] | None = None) -> dict[str, Vendor]:
    """Return the vendors that a process with this environment can simulate, by torch device type."""
    device = from_environment(environ)
    if device is None:
        return DEVICES
    return {**DEVICES, device.vendor.name: device.vendor}


def install(device: DeclaredDevice) -> None:
    """Make the vendor's package, and the distributions that the declaration requires, importable."""
    sys.meta_path.insert(0, _Finder(device))


def _imports(accelerator: str, package: str) -> set[str]:
    """Return the modules and names of `package` that the module of an accelerator class imports.

    `accelerator` is the class in the form `"module:Class"`. The module's source is parsed, because importing
        the module would import torch.
    """
    imported: set[str] = set()
    for node in ast.walk(ast.parse(_source_of(accelerator.partition(":")[0]))):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imported.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in imported if f"{name}.".startswith(f"{package}.")}


def _source_of(module: str) -> bytes:
    """Return a module's source without importing the module or its package; empty if it is not found."""
    top, *rest = module.split(".")
    spec = PathFinder.find_spec(top)
    if spec is None or not spec.submodule_search_locations or not rest:
        return b""
    source = Path(spec.submodule_search_locations[0], *rest).with_suffix(".py")
    return source.read_bytes() if source.is_file() else b""


def _declared_vendor(
    name: str, package: str, collective: str, visible: Iterable[str]
) -> Vendor:
    return Vendor(
        name,
        "as an installed plugin declares it",
        package,
        collective,
        visible=tuple(visible),
    )


def _missing_distributions(backend: Backend) -> dict[str, str]:
    """Return, for each required distribution that is not installed, a version that is accepted."""
    from packaging.requirements import InvalidRequirement, Requirement

    torch_version = ""
    for distribution in distributions(name="torch"):
        torch_version = distribution.version
        break
    missing = dict.fromkeys(backend.torch_integration.same_version, torch_version)
    for text in backend.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # accel-core reports the invalid requirement
            continue
        if not any(distributions(name=requirement.name)):
            missing[requirement.name] = _version_for(requirement)
    return missing


def _version_for(requirement: Requirement) -> str:
    """Return a version that satisfies the requirement; 0.1+simulated if no tried version does."""
    bounds = [part.version.removesuffix(".*") for part in requirement.specifier]
    for version in (_VERSION, *bounds, *(f"{bound}.1" for bound in bounds)):
        if requirement.specifier.contains(version):
            return version
    return _VERSION


class _Finder(DistributionFinder):
    """Finds the vendor's package, its parent packages, and the required distributions."""

    def __init__(self, device: DeclaredDevice) -> None:
        self._vendor = device.vendor
        self._distributions = device.distributions

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> ModuleSpec | None:
        package = self._vendor.package
        if fullname == package or package.startswith(f"{fullname}."):
            return ModuleSpec(
                fullname,
                _Loader(self._vendor),
                origin="accel-simulated",
                is_package=True,
            )
        if fullname == f"{package}.{self._vendor.name}":
            return spec_from_file_location(fullname, _MODULE)
        return None

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        requested = getattr(context, "name", None)
        for name, version in self._distributions.items():
            if requested is None or _normalized(requested) == _normalized(name):
                yield _Distribution(name, version)


class _Loader(Loader):
    """Loads the vendor's package, which registers the device with torch."""

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ != self._vendor.package:
            return
        from accel_simulated import vendor_package

        module.__version__ = _VERSION  # type: ignore[attr-defined]
        vendor_package.start(self._vendor.name)
        vendor_package.finish(
            importlib.import_module(f"{module.__name__}.{self._vendor.name}")
        )


class _Distribution(Distribution):
    """A distribution that has only metadata: a name and a version."""

    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename in ("METADATA", "PKG-INFO") else None

    def locate_file(self, path: Any) -> Path:
        return Path(path)


def _normalized(name: str) -> str:
    """Return a distribution's name in lower case, with dashes."""
    return name.lower().replace("_", "-")
