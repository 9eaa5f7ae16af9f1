"""Find a vendor's installed package, its folder and its distribution.

All facts are read from files; the package is not imported.
"""

from __future__ import annotations

from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from accel_core import package_folders

__all__ = ["VendorPackage", "vendor_package"]


class VendorPackage(NamedTuple):
    """An installed package, and the distribution that contains it, if known."""

    #: The module's name, such as `"habana_frameworks.torch"`.
    module: str
    #: The path of the package's folder.
    folder: str
    #: The distribution's name. This field and the following fields are empty if the distribution is
    #: unknown.
    distribution: str
    version: str
    #: The distribution's requirements, in the format of its metadata.
    requires: tuple[str, ...]
    #: The tags of the distribution's wheel, such as `("cp311-cp311-linux_x86_64",)`.
    tags: tuple[str, ...]

    def __str__(self) -> str:
        if not self.distribution:
            return self.module
        return f"{self.distribution} {self.version}"


def vendor_package(module: str) -> VendorPackage | None:
    """Return the installed package called `module`; `None` if it is missing or is not a package."""
    folders = package_folders(module)
    if not folders:
        return None
    folder = folders[0]
    site = str(Path(folder).parents[module.count(".")])
    distribution = _distribution(site, module)
    about = _read_message(distribution, "METADATA")
    wheel = _read_message(distribution, "WHEEL")
    return VendorPackage(
        module=module,
        folder=folder,
        distribution=about.get("Name", ""),
        version=about.get("Version", ""),
        requires=tuple(about.get_all("Requires-Dist", [])),
        tags=tuple(wheel.get_all("Tag", [])),
    )


def _distribution(site: str, module: str) -> metadata.Distribution | None:
    """Return the distribution that contains the package; `None` if it is unknown.

    This is the distribution with the package's name, or otherwise the distribution whose `RECORD`
    lists the package.
    """
    name = module.partition(".")[0]
    for distribution in metadata.distributions(name=name, path=[site]):
        return distribution
    line_start = f"\n{module.replace('.', '/')}/"
    for distribution in metadata.distributions(path=[site]):
        if line_start in "\n" + _read_text(distribution, "RECORD"):
            return distribution
    return None


def _read_message(
    distribution: metadata.Distribution | None, name: str
) -> Message[str, str]:
    """Return the headers of the metadata file `name`; no headers if the file cannot be read."""
    text = _read_text(distribution, name) if distribution is not None else ""
    return Parser().parsestr(text, headersonly=True)


def _read_text(distribution: metadata.Distribution, name: str) -> str:
    """Return the text of the metadata file `name`; empty if the file cannot be read."""
    try:
        return distribution.read_text(name) or ""
    except (OSError, ValueError):
        return ""
