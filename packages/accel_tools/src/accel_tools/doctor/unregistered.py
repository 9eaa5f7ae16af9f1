"""Find packages that add a device to torch without an entry point for torch or accel.

The device of such a package works only in a program that imports the package. Each of these
packages must call a certain function of torch, so they are found by the call in their files.
The packages are not imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from accel_core import packages
from accel_core.packages import normalize_distribution
from accel_core.text import one_line
from accel_core.torch_import import TORCH_GROUP

__all__ = ["UnregisteredPackage", "find_unregistered"]

#: The functions that a package calls to give torch's PrivateUse1 a name and a module (torch
#: 2.13, torch/utils/backend_registration.py, torch/__init__.py), or to register hooks from C++
#: (ATen/detail/PrivateUse1HooksInterface.h).
_CALLS = (
    b"rename_privateuse1_backend",
    b"_register_device_module",
    b"register_privateuse1_backend",
    b"RegisterPrivateUse1HooksInterface",
)
#: Distributions that are not searched: torch defines these functions, and distributions of the accel
#: project contain their names.
_NOT_SEARCHED = frozenset(
    (
        "torch",
        "accel-core",
        "accel-tools",
        "accel-train",
        "accel-testing",
        "accel-simulated",
    )
)
_MAX_BYTES = 1 << 28
_CODE_SUFFIXES = (".py", ".so", ".pyd", ".dylib")


#: Distributions with a device type that torch.accelerator does not support (torch_xla 2.9.0 with torch
#: 2.9.0), by name. They need a plugin with an accelerator class.
_UNSUPPORTED_TYPES = {"torch-xla": "xla"}


class UnregisteredPackage(NamedTuple):
    """A distribution that registers a device, and the module that must be imported."""

    distribution: str
    version: str
    module: str
    #: The path of the file that makes the call, relative to `site-packages`.
    file: str = ""

    @property
    def device_type(self) -> str:
        """Return the device type if torch.accelerator does not support it; otherwise empty."""
        return _UNSUPPORTED_TYPES.get(normalize_distribution(self.distribution), "")

    @property
    def description(self) -> str:
        """Return a clause that describes the package and its device."""
        package = f"{self.distribution} {self.version}"
        if self.device_type:
            return (
                f"{package} has the device {self.device_type!r}, which torch.accelerator "
                "does not support"
            )
        return f"{package} registers a device with torch when it is imported"


def find_unregistered(claimed: Iterable[str]) -> list[UnregisteredPackage]:
    """Return the packages that register a device and whose top-level module is not in `claimed`.

    `claimed` contains the top-level modules that plugins or settings import.
    """
    known = set(claimed)
    unregistered = []
    for distribution in packages.distributions():
        package = _examine(distribution)
        if package is not None and package.module not in known:
            unregistered.append(package)
    return unregistered


def _examine(distribution: metadata.Distribution) -> UnregisteredPackage | None:
    """Return the distribution's package if it registers a device without an entry point."""
    raw_name, raw_version = packages.name_and_version(distribution)
    name, version = one_line(raw_name), one_line(raw_version)
    try:
        if normalize_distribution(raw_name) in _UNSUPPORTED_TYPES:
            return UnregisteredPackage(name, version, name.replace("-", "_"))
        file = _registering_file(raw_name, distribution)
    except Exception:  # Damaged metadata is not reported here.
        return None
    if file is None:
        return None
    return UnregisteredPackage(
        name, version, one_line(file.parts[0]), one_line(str(file))
    )


def _registering_file(
    name: str, distribution: metadata.Distribution
) -> metadata.PackagePath | None:
    """Return the first file that registers a device; `None` if there is none or torch imports it."""
    if normalize_distribution(name) in _NOT_SEARCHED or not _needs_torch(distribution):
        return None
    if any(entry.group == TORCH_GROUP for entry in distribution.entry_points):
        return None
    for file in distribution.files or ():
        if _is_package_code(file) and _registers_device(file):
            return file
    return None


def _needs_torch(distribution: metadata.Distribution) -> bool:
    requirements = distribution.requires or ()
    return any(re.match(r"torch\b(?![-_.\w])", text) for text in requirements)


def _is_package_code(file: metadata.PackagePath) -> bool:
    """Return whether the file contains code of a package, other than its tests."""
    is_in_package = len(file.parts) > 1 and "tests" not in file.parts
    return is_in_package and file.suffix in _CODE_SUFFIXES


def _registers_device(file: metadata.PackagePath) -> bool:
    path = Path(str(file.locate()))
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return False
    content = path.read_bytes()
    if not any(call in content for call in _CALLS):
        return False
    return file.suffix != ".py" or _makes_call(content)


def _makes_call(source: bytes) -> bool:
    """Return whether Python code makes one of the calls.

    A name in a string or a comment does not count; torchcts 0.4.1 contains such a name.
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            names.add(getattr(function, "attr", getattr(function, "id", "")))
    return any(call.decode() in names for call in _CALLS)
