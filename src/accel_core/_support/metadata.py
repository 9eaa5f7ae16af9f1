"""`importlib.metadata`, or its backport where the standard library's is too old (Python 3.10)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 11):
    import importlib.metadata as _metadata
else:
    import importlib_metadata as _metadata

__all__ = ["distributions", "entry_points", "folder_of", "metadata_folder", "version"]


def distributions() -> list[_metadata.Distribution]:
    """The installed distributions, in the order of `sys.path`."""
    try:
        return list(_metadata.distributions())
    except Exception:  # a finder of somebody else's fails
        return list(_metadata.MetadataPathFinder.find_distributions())


def entry_points(**selection: str) -> Iterable[_metadata.EntryPoint]:
    """The entry points of all installed distributions, or those of `group=`, in the order of `sys.path`."""
    return _metadata.entry_points(**selection)  # type: ignore[return-value]  # 3.10's stub, not the backport's


def version(distribution: str) -> str | None:
    """The version of an installed distribution; `None` where there is none, or none that can be read."""
    try:
        return _metadata.version(distribution)
    except Exception:  # not installed, or metadata that is broken in one of many ways
        return None


def metadata_folder(distribution: str) -> str:
    """The folder that holds an installed distribution's metadata; empty where there is none."""
    try:
        return folder_of(_metadata.distribution(distribution))
    except Exception:  # not installed, or metadata that is broken in one of many ways
        return ""


def folder_of(distribution: _metadata.Distribution) -> str:
    """The folder that holds its metadata; empty for an archive's, and for what another finder made up."""
    path = getattr(distribution, "_path", None)  # public nowhere
    return os.fspath(path) if isinstance(path, os.PathLike) else ""
