"""`importlib.metadata`, or its backport where the standard library's is too old (Python 3.10)."""

from __future__ import annotations

import functools
import logging
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 11):
    import importlib.metadata as _metadata
else:
    import importlib_metadata as _metadata

__all__ = ["distributions", "entry_points", "folder_of", "identity", "metadata_folder", "version"]

_log = logging.getLogger(__name__)


def distributions() -> list[_metadata.Distribution]:
    """The installed distributions, in the order of `sys.path`."""
    try:
        return list(_metadata.distributions())
    except Exception:  # a finder of somebody else's fails
        return list(_metadata.MetadataPathFinder.find_distributions())


def entry_points(group: str) -> tuple[_metadata.EntryPoint, ...]:
    """The entry points of `group` of all installed distributions, in the order of `sys.path`.

    Of several distributions of one name the first on `sys.path` counts. A distribution whose metadata cannot
    be read is passed over with a line in the log; it never hides another. Nothing is read again while
    `sys.path`, its folders and the finders stay as they are.
    """
    return tuple(e for e in _all_entry_points(_state_of_the_path()) if e.group == group)


def _state_of_the_path() -> tuple[object, ...]:
    """What tells whether the path has changed: the finders, and each entry with its time of change."""
    return (*map(id, sys.meta_path), *((str(entry), _mtime(entry)) for entry in sys.path))


def _mtime(entry: str) -> int | None:
    try:
        return os.stat(entry or ".").st_mtime_ns  # noqa: PTH116
    except (OSError, TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=1)
def _all_entry_points(_: tuple[object, ...]) -> tuple[_metadata.EntryPoint, ...]:
    """The entry points of every group, one distribution after the other.

    So does `importlib.metadata.entry_points()`, which fails for all of them over one that is broken.
    """
    known: dict[str, tuple[_metadata.EntryPoint, ...]] = {}
    for distribution in distributions():
        try:
            known.setdefault(distribution._normalized_name, tuple(distribution.entry_points))  # type: ignore[attr-defined]
        except Exception as error:
            where = getattr(distribution, "_path", distribution)
            _log.warning("%s is passed over, as its metadata cannot be read: %s", where, error)
    return tuple(entry_point for entry_points in known.values() for entry_point in entry_points)


def identity(distribution: _metadata.Distribution | None) -> tuple[str, str]:
    """A distribution's name and version, from its metadata or else from its folder's name."""
    if distribution is None:
        return "", ""
    folder = os.path.basename(folder_of(distribution)).rpartition(".")[0]  # noqa: PTH119
    name, _, version = folder.partition("-")
    try:
        headers = distribution.metadata
        return headers["Name"] or name, headers["Version"] or version
    except Exception:  # unreadable metadata
        return name, version


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
