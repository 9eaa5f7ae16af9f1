"""A vendor's installed package: its folder, and the distribution that it belongs to.

It is read from files; the package is not imported or loaded.
"""

from __future__ import annotations

from email import message_from_string
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from accel_core import package_folders

__all__ = ["VendorPackage", "vendor_package"]


class VendorPackage(NamedTuple):
    """An installed package, and the distribution that it belongs to, if known."""

    #: What is imported: `"habana_frameworks.torch"`.
    module: str
    folder: str
    #: The distribution's name; it and what follows empty where unknown.
    distribution: str
    version: str
    #: Its requirements, as they are written.
    requires: tuple[str, ...]
    #: What its wheel was built for: `("cp311-cp311-linux_x86_64",)`.
    tags: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.distribution} {self.version}" if self.distribution else self.module
        )


def vendor_package(module: str) -> VendorPackage | None:
    """Return the package installed under that name; `None` if it is missing, or is not a package."""
    folder = next(iter(package_folders(module)), "")
    if not folder:
        return None
    site = str(Path(folder).parents[module.count(".")])
    brought_by = _distribution(site, module)
    about, wheel = (
        message_from_string(_text(brought_by, name)) for name in ("METADATA", "WHEEL")
    )
    return VendorPackage(
        module,
        folder,
        about.get("Name", ""),
        about.get("Version", ""),
        tuple(about.get_all("Requires-Dist", [])),
        tuple(wheel.get_all("Tag", [])),
    )


def _distribution(site: str, module: str) -> metadata.Distribution | None:
    """Return the distribution that brings it: that of its name, else the one whose `RECORD` has it."""
    own = metadata.distributions(name=module.partition(".")[0], path=[site])
    path = f"{module.replace('.', '/')}/"
    others = (
        d
        for d in metadata.distributions(path=[site])
        if f"\n{path}" in f"\n{_text(d, 'RECORD')}"
    )
    return next(iter(own), None) or next(others, None)


def _text(distribution: metadata.Distribution | None, name: str) -> str:
    """Return that file of its metadata; empty where it is missing or cannot be read."""
    try:
        return (distribution and distribution.read_text(name)) or ""
    except (OSError, ValueError):
        return ""
