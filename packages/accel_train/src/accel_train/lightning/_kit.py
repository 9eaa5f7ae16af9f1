"""Find which of Lightning's packages to use, without importing the others."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType

from accel_core import is_installed, packages
from accel_core.errors import IntegrationMissingError
from accel_core.torch_import import import_torch
from accel_train.launch.variables import WORLD_SIZE

__all__ = ["lightning_module", "ranks_here", "release"]

#: The same code under two names: the distribution `lightning`, and the older ones that it came from.
_PACKAGES = {
    "pytorch": ("lightning.pytorch", "pytorch_lightning"),
    "fabric": ("lightning.fabric", "lightning_fabric"),
}
#: The oldest release with what ours are built on: `ModelParallelStrategy`, and a way for FSDP's subclasses.
_OLDEST = "2.3"


def lightning_module(kind: str, name: str) -> ModuleType:
    """Return Lightning's module `name` (`"strategies"`) for `"pytorch"` or `"fabric"`.

    It is from the package that this process has imported, else from an installed one; `lightning` comes
    first. Raises `IntegrationMissingError` if none is installed, or if it is too old.
    """
    package = _package(kind)
    if not package:
        raise IntegrationMissingError(
            "Lightning is not installed in this environment: pip install lightning"
        )
    distribution, version = release(kind)
    if _is_older(version):
        raise IntegrationMissingError(
            f"{distribution} {version} is installed, accel-train needs {_OLDEST} or newer: "
            f"pip install '{distribution}>={_OLDEST}'"
        )
    return importlib.import_module(f"{package}.{name}")


def release(kind: str) -> tuple[str, str]:
    """Return Lightning's distribution and version; both empty for a source tree without metadata."""
    distribution = _package(kind).partition(".")[0].replace("_", "-")
    return distribution, packages.version(distribution) or ""


def _package(kind: str) -> str:
    names = _PACKAGES[kind]
    loaded = [name for name in names if name in sys.modules]
    return next(iter(loaded or filter(is_installed, names)), "")


def _is_older(version: str) -> bool:
    from packaging.version import (
        InvalidVersion,
        Version,
    )  # takes longer to import than this module

    try:
        return Version(version) < Version(_OLDEST)
    except InvalidVersion:  # a build of somebody's own: taken as it is
        return False


def ranks_here(num_nodes: int) -> int:
    """Return how many ranks a launcher started on this host; 0 if Lightning starts them itself."""
    if not import_torch().distributed.is_torchelastic_launched():
        return 0
    return WORLD_SIZE.read(os.environ) // num_nodes
