"""Find a vendor's installed package, its folder and its distribution.

The package is not imported: all information is read from files.
"""

from __future__ import annotations

from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from accel_core import package_folders

__all__ = ["VendorPackage", "find_vendor_package"]


class VendorPackage(NamedTuple):
    """An installed vendor package, and the distribution that contains it, if known."""

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


def find_vendor_package(module: str) -> VendorPackage | None:
    """Return the installed package called `module`.

    Returns `None` if the package is missing, or if the module is not a package.
    """
    folders = package_folders(module)
    if not folders:
        return None
    folder = folders[0]
    # For "habana_frameworks.torch", the folder is two levels below site-packages.
    site_packages = str(Path(folder).parents[module.count(".")])
    distribution = _find_distribution(site_packages, module)
    metadata_headers = _read_metadata_headers(distribution, "METADATA")
    wheel_headers = _read_metadata_headers(distribution, "WHEEL")
    return VendorPackage(
        module=module,
        folder=folder,
        distribution=metadata_headers.get("Name", ""),
        version=metadata_headers.get("Version", ""),
        requires=tuple(metadata_headers.get_all("Requires-Dist", [])),
        tags=tuple(wheel_headers.get_all("Tag", [])),
    )


def _find_distribution(site_packages: str, module: str) -> metadata.Distribution | None:
    """Return the distribution in `site_packages` that contains the module, or `None` if unknown.

    A distribution with the module's name is preferred to a distribution whose `RECORD` lists the module.
    """
    # Most distributions have the name of their module.
    name = module.partition(".")[0]
    for distribution in metadata.distributions(name=name, path=[site_packages]):
        return distribution
    # Otherwise, the distribution that lists a file of the module is searched. Each line of a RECORD
    # starts with the path of a file.
    line_start = f"\n{module.replace('.', '/')}/"
    for distribution in metadata.distributions(path=[site_packages]):
        record = "\n" + _read_metadata_file(distribution, "RECORD")
        if line_start in record:
            return distribution
    return None


def _read_metadata_headers(
    distribution: metadata.Distribution | None, name: str
) -> Message[str, str]:
    """Return the headers of a distribution's metadata file, such as `WHEEL`.

    There are no headers if the distribution is `None`, or if the file cannot be read.
    """
    text = ""
    if distribution is not None:
        text = _read_metadata_file(distribution, name)
    return Parser().parsestr(text, headersonly=True)


def _read_metadata_file(distribution: metadata.Distribution, name: str) -> str:
    """Return the text of a distribution's metadata file, such as `RECORD`, or an empty string on failure."""
    try:
        return distribution.read_text(name) or ""
    except (OSError, ValueError):
        return ""
