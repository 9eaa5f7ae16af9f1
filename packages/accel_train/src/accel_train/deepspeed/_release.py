"""Find the version and the folder of the installed DeepSpeed, without importing DeepSpeed."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from accel_core import package_folders, packages
from accel_core.errors import IntegrationMissingError

__all__ = [
    "OLDEST_SUPPORTED",
    "UNKNOWN_VERSION",
    "has_accel_core_support",
    "installed_version",
    "is_installed",
    "lists_accelerator",
    "package_folder",
    "require_supported_version",
]

#: The oldest release with which this integration was tested.
OLDEST_SUPPORTED = "0.16"
UNKNOWN_VERSION = "of unknown version"


def require_supported_version() -> str:
    """Return the installed version of DeepSpeed, or raise an error if that version is not supported.

    Returns `UNKNOWN_VERSION` for a source tree without metadata. Raises `IntegrationMissingError` if
    DeepSpeed is not installed, or is older than `OLDEST_SUPPORTED`.
    """
    version = installed_version()
    if version is None:
        raise IntegrationMissingError(
            "DeepSpeed is not installed in this environment: pip install deepspeed (0.16 or newer)"
        )
    if version != UNKNOWN_VERSION and _is_too_old(version):
        raise IntegrationMissingError(
            f"DeepSpeed {version} is installed, but accel-train needs {OLDEST_SUPPORTED} or newer: "
            f"pip install 'deepspeed>={OLDEST_SUPPORTED}'"
        )
    return version


def installed_version() -> str | None:
    """Return the installed version of DeepSpeed, or `None` if DeepSpeed is not installed.

    Returns `UNKNOWN_VERSION` if DeepSpeed is installed without metadata.
    """
    # Metadata may remain after its package was removed, and a source tree has no metadata.
    if package_folder() is None:
        return None
    return _version_in_metadata()


# Cached, because parsing the metadata takes milliseconds.
@functools.cache
def _version_in_metadata() -> str:
    return packages.version("deepspeed") or UNKNOWN_VERSION


def _is_too_old(version: str) -> bool:
    """Return whether `version` is older than `OLDEST_SUPPORTED`, or False if it cannot be parsed."""
    # A release such as "0.16.4" or "0.16.4+local". Any other version needs the package `packaging`.
    release = re.match(r"(?P<major>\d+)\.(?P<minor>\d+)(\.\d+)*(\+[\w.]+)?$", version)
    if release:
        oldest = tuple(int(number) for number in OLDEST_SUPPORTED.split("."))
        return (int(release["major"]), int(release["minor"])) < oldest
    # Imported here because importing packaging takes longer than importing this module.
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version) < Version(OLDEST_SUPPORTED)
    except InvalidVersion:  # A private build may have any version, and is accepted.
        return False


def is_installed() -> bool:
    """Return whether DeepSpeed is installed, without importing DeepSpeed."""
    return package_folder() is not None


def has_accel_core_support() -> bool:
    """Return whether the installed DeepSpeed itself calls accel_core.

    The patch lab/contrib/deepspeed-native.patch adds this call to DeepSpeed.
    """
    return "import accel_core" in _selection_source()


def lists_accelerator(name: str) -> bool:
    """Return whether DeepSpeed's list of accelerators contains `name`.

    Returns True if the list cannot be read.
    """
    # Matches the list in DeepSpeed's source, such as `SUPPORTED_ACCELERATOR_LIST = ['cuda', 'cpu']`.
    definition = re.search(
        r"^SUPPORTED_ACCELERATOR_LIST = (?P<names>\[.*?\])",
        _selection_source(),
        re.MULTILINE | re.DOTALL,
    )
    if definition is None:  # A changed DeepSpeed may have no such list.
        return True
    return repr(name) in definition["names"]


def _selection_source() -> str:
    """Return the source of the module in which DeepSpeed selects its accelerator.

    Returns an empty string if it is missing.
    """
    folder = package_folder()
    if folder is None:
        return ""
    file = folder / "accelerator" / "real_accelerator.py"
    if not file.is_file():
        return ""
    return file.read_text("utf-8", "replace")


def package_folder() -> Path | None:
    """Return the path of DeepSpeed's package folder, or `None` if DeepSpeed is not installed."""
    folders = package_folders("deepspeed")
    if not folders:
        return None
    return Path(folders[0])
