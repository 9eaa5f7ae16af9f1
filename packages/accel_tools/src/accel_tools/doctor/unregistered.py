"""Find packages that add a device to torch without an entry point for torch or accel.

The device of such a package works only in a program that imports the package. The package is found
by a call in its files, because it must call certain functions of torch. It is not imported.
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

__all__ = ["UnregisteredPackage", "find_unregistered_packages"]

#: The functions of torch with which a package names PrivateUse1 and adds a module for its device (torch
#: 2.13, torch/utils/backend_registration.py, torch/__init__.py), or registers hooks from C++
#: (ATen/detail/PrivateUse1HooksInterface.h).
_REGISTRATION_FUNCTIONS = (
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
#: The maximum size in bytes of a file that is searched.
_MAX_BYTES = 1 << 28
_CODE_SUFFIXES = (".py", ".so", ".pyd", ".dylib")


#: The device types of distributions whose device torch.accelerator does not support (torch_xla 2.9.0
#: with torch 2.9.0). Such a distribution needs a plugin with an accelerator class.
_UNSUPPORTED_TYPES = {"torch-xla": "xla"}


class UnregisteredPackage(NamedTuple):
    """A distribution that adds a device to torch only when a program imports its module."""

    distribution: str
    version: str
    module: str
    #: The path of the file that makes the call, relative to `site-packages`.
    file: str = ""

    @property
    def device_type(self) -> str:
        """Return the package's device type if torch.accelerator does not support it.

        Returns an empty string if the device type is supported.
        """
        return _UNSUPPORTED_TYPES.get(normalize_distribution(self.distribution), "")

    @property
    def description(self) -> str:
        """Return a clause about the package, such as `"… registers a device with torch when imported"`."""
        package = f"{self.distribution} {self.version}"
        if self.device_type:
            return (
                f"{package} has the device {self.device_type!r}, which torch.accelerator "
                "does not support"
            )
        return f"{package} registers a device with torch when it is imported"


def find_unregistered_packages(
    imported_modules: Iterable[str],
) -> list[UnregisteredPackage]:
    """Return the packages that register a device with torch but that no plugin or setting imports.

    `imported_modules` contains the top-level modules that plugins or settings import. Their packages are
    left out.
    """
    imported = set(imported_modules)
    unregistered = []
    for distribution in packages.distributions():
        package = _find_unregistered_package(distribution)
        if package is not None and package.module not in imported:
            unregistered.append(package)
    return unregistered


def _find_unregistered_package(
    distribution: metadata.Distribution,
) -> UnregisteredPackage | None:
    """Return the distribution's package if it registers a device without an entry point.

    A package whose device torch.accelerator does not support is returned in any case.
    """
    raw_name, raw_version = packages.name_and_version(distribution)
    name, version = one_line(raw_name), one_line(raw_version)
    try:
        if normalize_distribution(raw_name) in _UNSUPPORTED_TYPES:
            module = name.replace("-", "_")
            return UnregisteredPackage(name, version, module)
        file = _find_registering_file(raw_name, distribution)
    except Exception:  # Damaged metadata is not reported here.
        return None
    if file is None:
        return None
    module = one_line(file.parts[0])
    return UnregisteredPackage(name, version, module, one_line(str(file)))


def _find_registering_file(
    name: str, distribution: metadata.Distribution
) -> metadata.PackagePath | None:
    """Return the distribution's first file that registers a device with torch, or `None` if there is none.

    The result is also `None` if the distribution has an entry point for torch, because torch then imports the
    package.
    """
    is_excluded = normalize_distribution(name) in _NOT_SEARCHED
    if is_excluded or not _requires_torch(distribution):
        return None
    groups = [entry_point.group for entry_point in distribution.entry_points]
    if TORCH_GROUP in groups:  # torch itself imports the package.
        return None
    for file in distribution.files or ():
        if _is_package_code(file) and _contains_registration(file):
            return file
    return None


def _requires_torch(distribution: metadata.Distribution) -> bool:
    requirements = distribution.requires or ()
    # A distribution whose name only begins with "torch", such as torch-npu, does not count.
    torch_alone = re.compile(r"torch\b(?![-_.\w])")
    return any(torch_alone.match(requirement) for requirement in requirements)


def _is_package_code(file: metadata.PackagePath) -> bool:
    """Return whether the file contains code of a package, other than its tests."""
    is_in_package = len(file.parts) > 1 and "tests" not in file.parts
    return is_in_package and file.suffix in _CODE_SUFFIXES


def _contains_registration(file: metadata.PackagePath) -> bool:
    """Return whether the file contains a call that registers a device with torch."""
    path = Path(str(file.locate()))
    if not path.is_file() or path.stat().st_size > _MAX_BYTES:
        return False
    content = path.read_bytes()
    if not any(function in content for function in _REGISTRATION_FUNCTIONS):
        return False
    is_compiled = file.suffix != ".py"
    # In a compiled file, the name is proof enough. A source file may contain it in a comment.
    return is_compiled or _calls_registration_function(content)


def _calls_registration_function(source: bytes) -> bool:
    """Return whether Python code calls one of the functions that register a device with torch.

    A function's name in a string or a comment does not count; torchcts 0.4.1 contains such a name.
    """
    called_names = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            called_names.add(node.func.attr)
        elif isinstance(node.func, ast.Name):
            called_names.add(node.func.id)
    return any(name.decode() in called_names for name in _REGISTRATION_FUNCTIONS)
