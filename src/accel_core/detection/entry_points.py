"""Entry points of one group, as `importlib.metadata` gives them."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
from typing import Any, NamedTuple

from accel_core._support import metadata
from accel_core._text import clean
from accel_core.backend import Provenance
from accel_core.settings import normalize_distribution

__all__ = ["EntryPoint", "find_entry_points", "name_of", "provenance"]


class EntryPoint(NamedTuple):
    """One line of a distribution's `entry_points.txt`, and the distribution."""

    name: str
    value: str
    distribution: str
    version: str

    @property
    def module(self) -> str:
        """The module that the value names; empty where it names none."""
        return self.value.partition("[")[0].partition(":")[0].strip()

    def load(self) -> object:
        """Import what the value names: `"package.module"` or `"package.module:object"`."""
        attributes = self.value.partition("[")[0].partition(":")[2].strip()  # extras are not ours to resolve
        loaded: object = importlib.import_module(self.module)
        for attribute in filter(None, attributes.split(".")):
            loaded = getattr(loaded, attribute)
        return loaded


def name_of(entry_point: EntryPoint) -> str:
    """The name for a verdict: of an entry point without one its distribution's, as users can block that."""
    return clean(entry_point.name.lower()) or normalize_distribution(entry_point.distribution)


def provenance(entry_point: EntryPoint) -> Provenance:
    """Where the entry point comes from, as messages name it."""
    # Folder names and metadata may hold anything, and these go into every message.
    distribution, version = clean(entry_point.distribution), clean(entry_point.version)
    return Provenance(distribution, version, entry_point.name, entry_point.value)


def find_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of `group`, in the order of `sys.path`.

    Of several distributions of one name the first on `sys.path` counts. A distribution whose metadata cannot
    be read is passed over with a line in the log; it never hides another.
    """
    return _in_group(group, _state_of_the_path())


def _state_of_the_path() -> tuple[object, ...]:
    """What tells whether the path has changed: the finders, and each entry with its time of change."""
    return (*map(id, sys.meta_path), *((str(entry), _mtime(entry)) for entry in sys.path))


def _mtime(entry: str) -> int | None:
    try:
        return os.stat(entry or ".").st_mtime_ns
    except (OSError, TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=16)
def _in_group(group: str, state: tuple[object, ...]) -> tuple[EntryPoint, ...]:
    found = [e for e in _all_of(state) if e.group == group]
    return tuple(EntryPoint(e.name, e.value, *_identity(e.dist)) for e in found)


@functools.lru_cache(maxsize=1)
def _all_of(_: tuple[object, ...]) -> tuple[Any, ...]:
    """The entry points of every group, read once for as long as the path stays as it is.

    One distribution after the other, as `importlib.metadata.entry_points()` does, which fails for all of them
    over one whose metadata is broken.
    """
    known: dict[str, tuple[Any, ...]] = {}
    for distribution in metadata.distributions():
        try:
            known.setdefault(distribution._normalized_name, tuple(distribution.entry_points))  # type: ignore[attr-defined]
        except Exception as error:
            where = getattr(distribution, "_path", distribution)
            what = f"{where} is passed over, as its metadata cannot be read: {error}"
            logging.getLogger(__name__).warning(what)
    return tuple(entry_point for entry_points in known.values() for entry_point in entry_points)


def _identity(distribution: Any) -> tuple[str, str]:
    """A distribution's name and version, from its metadata or else from its folder's name."""
    folder = os.path.basename(metadata.folder_of(distribution)).rpartition(".")[0]
    name, _, version = folder.partition("-")
    try:
        headers = distribution.metadata
        return headers["Name"] or name, headers["Version"] or version
    except Exception:  # unreadable metadata
        return name, version
