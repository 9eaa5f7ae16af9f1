"""Packages that bring a device into torch without an entry point for torch or for accel.

The device works only in a program that imports the package. They are found by a call that such a package must
make, in its files, without importing it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from accel_core import packages
from accel_core.text import one_line
from accel_core.torch_import import TORCH_GROUP

__all__ = ["Unannounced", "found"]

#: What a package calls to give torch's PrivateUse1 a name and a module (torch 2.13,
#: torch/utils/backend_registration.py, torch/__init__.py), or to register its hooks from C++
#: (ATen/detail/PrivateUse1HooksInterface.h).
_CALLS = (
    b"rename_privateuse1_backend", b"_register_device_module", b"register_privateuse1_backend",
    b"RegisterPrivateUse1HooksInterface",
)  # fmt: skip
#: These name the calls because they are torch's, or look for them.
_PASSED_OVER = frozenset(
    (
        "torch",
        "accel-core",
        "accel-tools",
        "accel-train",
        "accel-testing",
        "accel-simulated",
    )
)
_LARGEST = 1 << 28


#: Packages with a device type that torch.accelerator does not know, and so no plugin without a class of its
#: own: torch_xla 2.9.0 beside torch 2.9.0.
_UNKNOWN_TYPES = {"torch-xla": "xla"}


class Unannounced(NamedTuple):
    """A distribution that registers a device, and the module to import for it."""

    distribution: str
    version: str
    module: str
    #: The file that makes the call, below its folder.
    file: str = ""

    @property
    def device_type(self) -> str:
        """The device type, if torch.accelerator does not know it; else empty."""
        return _UNKNOWN_TYPES.get(self.distribution.lower().replace("_", "-"), "")

    @property
    def told(self) -> str:
        """The package, and what is to know of its device."""
        who = f"{self.distribution} {self.version}"
        if kind := self.device_type:
            return (
                f"{who} has the device {kind!r}, of which torch.accelerator has no word"
            )
        return f"{who} registers a device with torch when it is imported"


def found(claimed: Iterable[str]) -> list[Unannounced]:
    """List the packages whose modules are not in `claimed`, the top modules of vendor imports."""
    known = set(claimed)
    found = (
        package
        for distribution in packages.distributions()
        for package in _of(distribution)
    )
    return [package for package in found if package.module not in known]


def _of(distribution: metadata.Distribution) -> Iterator[Unannounced]:
    name, version = packages.name_and_version(distribution)
    try:
        if name.lower().replace("_", "-") in _UNKNOWN_TYPES:
            yield Unannounced(
                one_line(name), one_line(version), one_line(name).replace("-", "_")
            )
            return
        if name.lower().replace("_", "-") in _PASSED_OVER or not _needs_torch(
            distribution
        ):
            return
        if any(
            entry_point.group == TORCH_GROUP
            for entry_point in distribution.entry_points
        ):
            return
        calling = next(filter(_calls, distribution.files or ()), None)
    except Exception:  # damaged metadata is no finding of this topic
        return
    if calling is not None:
        yield Unannounced(
            one_line(name),
            one_line(version),
            one_line(calling.parts[0]),
            one_line(str(calling)),
        )


def _needs_torch(distribution: metadata.Distribution) -> bool:
    return any(
        re.match(r"torch\b(?![-_.\w])", required)
        for required in distribution.requires or ()
    )


def _calls(file: metadata.PackagePath) -> bool:
    """Whether a package's own code makes one of the calls."""
    if (
        len(file.parts) < 2
        or file.suffix not in (".py", ".so", ".pyd", ".dylib")
        or "tests" in file.parts
    ):
        return False
    path = Path(str(file.locate()))
    if not path.is_file() or path.stat().st_size > _LARGEST:
        return False
    content = path.read_bytes()
    if not any(call in content for call in _CALLS):
        return False
    if file.suffix != ".py":
        return True
    # A test suite for such packages, torchcts 0.4.1, only mentions the call.
    called = (
        node.func for node in ast.walk(ast.parse(content)) if isinstance(node, ast.Call)
    )
    names = {
        getattr(function, "attr", getattr(function, "id", "")) for function in called
    }
    return any(call.decode() in names for call in _CALLS)
