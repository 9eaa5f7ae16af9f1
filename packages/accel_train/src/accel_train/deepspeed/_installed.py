"""Find the version and the folder of the installed DeepSpeed, without importing it."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from accel_core import package_folders, packages
from accel_core.errors import IntegrationMissingError

__all__ = [
    "OLDEST",
    "UNKNOWN",
    "asks_us",
    "folder",
    "installed_version",
    "is_installed",
    "knows",
    "version",
]

#: The oldest release that this integration was tried with.
OLDEST = "0.16"
UNKNOWN = "of unknown version"


def version() -> str:
    """Return the version of the installed DeepSpeed, or `UNKNOWN` for a source tree without metadata.

    Raises `IntegrationMissingError` if DeepSpeed is not installed or older than `OLDEST`.
    """
    version = installed_version()
    if version is None:
        raise IntegrationMissingError(
            "DeepSpeed is not installed in this environment: pip install deepspeed (0.16 or newer)"
        )
    if version != UNKNOWN and _is_older(version):
        raise IntegrationMissingError(
            f"DeepSpeed {version} is installed, accel-core needs {OLDEST} or newer: "
            f"pip install 'deepspeed>={OLDEST}'"
        )
    return version


def installed_version() -> str | None:
    """Return DeepSpeed's version, `UNKNOWN` for a source tree without metadata, `None` if not installed."""
    # Metadata may outlive its package, and a source tree has none.
    return None if folder() is None else _version()


@functools.cache  # parsing its metadata takes milliseconds
def _version() -> str:
    return packages.version("deepspeed") or UNKNOWN


def _is_older(version: str) -> bool:
    plain = re.match(r"(\d+)\.(\d+)(\.\d+)*(\+[\w.]+)?$", version)
    if plain:
        return (int(plain[1]), int(plain[2])) < tuple(map(int, OLDEST.split(".")))
    from packaging.version import (
        InvalidVersion,
        Version,
    )  # takes longer to import than all of this

    try:
        return Version(version) < Version(OLDEST)
    except InvalidVersion:  # a build of somebody's own: taken as it is
        return False


def is_installed() -> bool:
    """Return whether DeepSpeed is installed, without importing it."""
    return folder() is not None


def asks_us() -> bool:
    """Return whether the installed DeepSpeed calls accel_core itself (lab/contrib/deepspeed-native.patch)."""
    return "import accel_core" in _chooser()


def knows(pin: str) -> bool:
    """Return whether the installed DeepSpeed lists `pin`, or is not one that can be read."""
    listed = re.search(
        r"^SUPPORTED_ACCELERATOR_LIST = (\[.*?\])", _chooser(), re.MULTILINE | re.DOTALL
    )
    return listed is None or repr(pin) in listed[1]


def _chooser() -> str:
    """Return the code by which DeepSpeed chooses; empty if it is not installed."""
    home = folder()
    file = home and home / "accelerator" / "real_accelerator.py"
    return file.read_text("utf-8", "replace") if file and file.is_file() else ""


def folder() -> Path | None:
    """Return the folder of DeepSpeed's package; `None` if it is not installed."""
    folders = package_folders("deepspeed")
    return Path(folders[0]) if folders else None
