"""`importlib.metadata`, or its backport where the standard library's is too old (Python 3.10)."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 11):
    import importlib.metadata as _metadata
else:
    import importlib_metadata as _metadata

__all__ = ["distributions", "entry_points", "folder_of", "metadata_folder", "version"]


def distributions(path: list[str] | None = None) -> Iterable[_metadata.Distribution]:
    """The distributions on `path`, or on `sys.path` and with every finder where it is `None`.

    An entry that is neither a folder nor a file is passed over.
    """
    return _metadata.distributions(path=_readable(sys.path if path is None else path))


def entry_points(group: str) -> Iterable[_metadata.EntryPoint]:
    """The entry points of `group` of all installed distributions, in the order of `sys.path`."""
    return _metadata.entry_points(group=group)


def version(distribution: str) -> str | None:
    """The version of an installed distribution; `None` where there is none, or none that can be read."""
    try:
        if not distribution:  # importlib would take it for any
            return None
        found = next(iter(_metadata.Distribution.discover(name=distribution, path=_readable(sys.path))))
        files = [f"{folder_of(found)}/{name}" for name in ("METADATA", "PKG-INFO")]
        if any(os.path.exists(file) and not os.path.isfile(file) for file in files):  # noqa: PTH110, PTH113
            return None  # reading a FIFO would wait for somebody to write
        return found.version
    except Exception:  # not installed, or metadata that is broken in one of many ways
        return None


def metadata_folder(distribution: str) -> str:
    """The folder that holds an installed distribution's metadata; empty where there is none."""
    try:
        found = _metadata.Distribution.discover(name=distribution, path=_readable(sys.path))
        return folder_of(next(iter(found))) if distribution else ""
    except Exception:  # not installed, or metadata that is broken in one of many ways
        return ""


def _readable(path: list[str]) -> list[str]:
    """`path` without what importlib would wait for: what is no folder it opens as an archive, a FIFO too."""
    return [entry for entry in path if not isinstance(entry, str) or not _is_special(entry or ".")]


def _is_special(path: str) -> bool:
    """Whether neither a regular file nor a folder is there."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def folder_of(distribution: _metadata.Distribution) -> str:
    """The folder that holds its metadata; empty for an archive's, and for what another finder made up."""
    path = getattr(distribution, "_path", None)  # public nowhere
    return os.fspath(path) if isinstance(path, os.PathLike) else ""
