"""Find which of Lightning's packages to use, without importing its other packages."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from accel_core import is_installed, packages
from accel_core.errors import IntegrationMissingError
from accel_core.torch_import import import_torch
from accel_train.launch.variables import WORLD_SIZE

__all__ = ["installed_release", "launched_ranks_per_node", "lightning_module"]

#: Packages with the same code. The first is in the distribution `lightning`, the second in an older one.
_PACKAGES = {
    "pytorch": ("lightning.pytorch", "pytorch_lightning"),
    "fabric": ("lightning.fabric", "lightning_fabric"),
}
#: The oldest release with the base classes: `ModelParallelStrategy`, and an FSDP that supports subclasses.
_OLDEST_SUPPORTED = "2.3"


def lightning_module(subpackage: str, name: str) -> ModuleType:
    """Import and return the Lightning module `name`, such as `"strategies"`.

    `subpackage` is `"pytorch"` or `"fabric"`. The module is taken from the Lightning package that this
    process has imported, or otherwise from an installed one. If there are several, `lightning` takes
    precedence. Raises `IntegrationMissingError` if no Lightning package is installed, or if the installed
    release is too old.
    """
    package = _package_name(subpackage)
    if not package:
        raise IntegrationMissingError(
            "Lightning is not installed in this environment: pip install lightning"
        )
    distribution, version = installed_release(subpackage)
    if _is_too_old(version):
        raise IntegrationMissingError(
            f"{distribution} {version} is installed, but accel-train needs {_OLDEST_SUPPORTED} or newer: "
            f"pip install '{distribution}>={_OLDEST_SUPPORTED}'"
        )
    return importlib.import_module(f"{package}.{name}")


def installed_release(subpackage: str) -> tuple[str, str]:
    """Return the name and version of the installed Lightning distribution.

    The version is an empty string if there is no metadata. Both are empty strings if Lightning is not
    installed.
    """
    top_package, _, _ = _package_name(subpackage).partition(".")
    distribution = top_package.replace("_", "-")
    return distribution, packages.version(distribution) or ""


def _package_name(subpackage: str) -> str:
    """Return the name of the imported Lightning package, or otherwise of an installed Lightning package.

    Returns an empty string if no Lightning package is installed.
    """
    names = _PACKAGES[subpackage]
    for name in names:
        if name in sys.modules:
            return name
    for name in names:
        if is_installed(name):
            return name
    return ""


def _is_too_old(version: str) -> bool:
    """Return whether `version` is older than `_OLDEST_SUPPORTED`, or False if it cannot be parsed."""
    # Imported here because importing packaging takes longer than importing this module.
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version) < Version(_OLDEST_SUPPORTED)
    except InvalidVersion:  # A private build may have any version, and is accepted.
        return False


def launched_ranks_per_node(num_nodes: int) -> int:
    """Return the number of ranks that a launcher started on this host, or 0 if Lightning starts the ranks."""
    if not import_torch().distributed.is_torchelastic_launched():
        return 0
    return WORLD_SIZE.read(os.environ) // num_nodes
