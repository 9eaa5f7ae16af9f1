"""A device that only an installed plugin knows: simulated as `acme` is, under the names that it declares.

Who starts a process for it (`accel simulate`, `pytest --accel`) reads the declaration and tells the processes
below in `ACCEL_SIMULATE_DECLARED`: they simulate from Python's start on, when nothing can be looked for yet.
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
    from accel_core import Backend

__all__ = ["VARIABLE", "Declared", "every", "find", "install", "known", "told"]

VARIABLE = "ACCEL_SIMULATE_DECLARED"
#: `torch.acme`, which serves under any other name.
_MODULE = ROOT / "runtimes" / "acme" / "torch_acme" / "acme.py"
_VERSION = "0.1+simulated"
#: What anybody may call a device, with another package than the simulated one.
_NOBODYS = ("acme", "plain")


class Declared:
    """The part of a plugin's declaration that the simulation needs."""

    def __init__(
        self, backend: str, vendor: Vendor, distributions: Mapping[str, str]
    ) -> None:
        #: The backend's name, which need not be torch's device type: that is `vendor.name`.
        self.backend = backend
        self.vendor = vendor
        #: Versions of the distributions that the declaration requires beside torch.
        self.distributions = distributions

    def __str__(self) -> str:
        """For `VARIABLE`."""
        vendor = self.vendor
        values = [vendor.name, vendor.package, vendor.collective, vendor.visible]
        return json.dumps([self.backend, *values, dict(self.distributions)])


def find(name: str) -> Declared | None:
    """Return an installed plugin's declaration of the backend `name`; `None` if none fits.

    It must be a device in torch's renamed PrivateUse1 slot, from a package other than torch, that is not
    simulated already. Its accelerator's class must import no more of that package than the simulation has.
    Imports the plugins' modules, which have no side effects. Raises `SettingError` as
    `accel_core.discover` does.
    """
    # Without an import, and a note of it in the cache, where metadata tell: read-only images simulate too.
    from accel_core import packages
    from accel_core.backend import ENTRY_POINT_GROUP

    announced = any(e.name == name for e in packages.entry_points(ENTRY_POINT_GROUP))
    if name in DEVICES and (name not in _NOBODYS or not announced):
        return None
    return next((each for each in every() if each.backend == name), None)


def every() -> Iterator[Declared]:
    """Yield all declarations of installed plugins that `find` would return. Raises what `find` raises."""
    from accel_core import discover

    for each in discover(isolated=True):
        declared = _declared(each.backend) if each.backend is not None else None
        if declared is not None:
            yield declared


def _declared(backend: Backend) -> Declared | None:
    if not backend.torch_integration.private_use1:
        return None
    package, same = backend.vendor_imports[0], DEVICES.get(backend.name)
    if package == "torch":
        return None
    variables = backend.visibility.variables
    # What hides a device that is nobody's, its plugin alone says.
    is_told = not variables or backend.name not in _NOBODYS
    if (
        same is not None
        and (same.name, same.package) == (backend.device_type, package)
        and is_told
    ):
        return None
    if _imports(backend.accelerator, package) - {
        package,
        f"{package}.{backend.device_type}",
    }:
        return None
    # torch wants a name: where the plugin declares none, nobody asks for it by name.
    collective = backend.communication_backend or f"{backend.device_type}_simulated"
    vendor = _vendor(backend.device_type, package, collective, variables)
    return Declared(backend.name, vendor, _distributions(backend))


def told(environ: Mapping[str, str] | None = None) -> Declared | None:
    """Return the declaration that the parent process has read; `None` if it is missing or unreadable."""
    text = (os.environ if environ is None else environ).get(VARIABLE, "")
    try:
        backend, name, package, collective, visible, versions = json.loads(text)
        return Declared(
            backend, _vendor(name, package, collective, visible), dict(versions)
        )
    except (
        ValueError,
        TypeError,
    ):  # empty; or not ours: the name is then one that nobody knows
        return None


def known(environ: Mapping[str, str] | None = None) -> dict[str, Vendor]:
    """Return everything that can be simulated in a process with this environment, by torch's device type."""
    found = told(environ)
    return DEVICES if found is None else {**DEVICES, found.vendor.name: found.vendor}


def install(found: Declared) -> None:
    """Make the vendor's package, and what the declaration requires, importable as if installed."""
    sys.meta_path.insert(0, _Finder(found))


def _imports(accelerator: str, package: str) -> set[str]:
    """The modules and names of `package` that the module of an accelerator's class imports.

    By its source: imported, it would import torch.
    """
    top, *rest = accelerator.partition(":")[0].split(".")
    spec = PathFinder.find_spec(top)
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    source = Path(folder or os.devnull, *rest).with_suffix(".py")
    found: set[str] = set()
    for node in ast.walk(
        ast.parse(source.read_bytes() if rest and source.is_file() else b"")
    ):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name for name in found if f"{name}.".startswith(f"{package}.")}


def _vendor(name: str, package: str, collective: str, visible: Iterable[str]) -> Vendor:
    return Vendor(
        name,
        "as an installed plugin declares it",
        package,
        collective,
        visible=tuple(visible),
    )


def _distributions(backend: Backend) -> dict[str, str]:
    """A version of each distribution that is required and not here, which fits."""
    from packaging.requirements import InvalidRequirement, Requirement

    torch = next((found.version for found in distributions(name="torch")), "")
    missing = dict.fromkeys(backend.torch_integration.same_version, torch)
    for text in backend.requires:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:  # which the verdict tells
            continue
        if not any(distributions(name=wanted.name)):
            near = [each.version.removesuffix(".*") for each in wanted.specifier]
            tried = (_VERSION, *near, *(f"{version}.1" for version in near))
            missing[wanted.name] = next(
                filter(wanted.specifier.contains, tried), _VERSION
            )
    return missing


class _Finder(DistributionFinder):
    """Finds the vendor's package, the packages that it is in, and its distributions."""

    def __init__(self, declared: Declared) -> None:
        self._vendor = declared.vendor
        self._distributions = declared.distributions

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
        wanted = getattr(context, "name", None)
        for name, version in self._distributions.items():
            if wanted is None or _normal(wanted) == _normal(name):
                yield _Distribution(name, version)


class _Loader(Loader):
    """Loads the vendor's package, which brings the device into torch."""

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
    """Metadata of a distribution of which there is nothing else."""

    def __init__(self, name: str, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename in ("METADATA", "PKG-INFO") else None

    def locate_file(self, path: Any) -> Path:
        return Path(path)


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")
