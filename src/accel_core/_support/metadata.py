"""`importlib.metadata`, or its backport where the standard library's is too old (Python 3.10)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 11):
    import importlib.metadata as _metadata
else:
    import importlib_metadata as _metadata

__all__ = ["distributions", "entry_points", "version"]


def distributions(path: list[str] | None = None) -> Iterable[_metadata.Distribution]:
    """The distributions on `path`, or on `sys.path` and with every finder where it is `None`."""
    return _metadata.distributions() if path is None else _metadata.distributions(path=path)


def entry_points(group: str) -> Iterable[_metadata.EntryPoint]:
    """The entry points of `group` of all installed distributions, in the order of `sys.path`."""
    return _metadata.entry_points(group=group)


def version(distribution: str) -> str | None:
    """The version of an installed distribution; `None` where there is none, or none that can be read."""
    try:
        return _metadata.version(distribution)
    except Exception:  # not installed, or metadata that is broken in one of many ways
        return None
