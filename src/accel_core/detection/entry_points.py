"""Entry points of one group, as `importlib.metadata` gives them."""

from __future__ import annotations

import importlib
from typing import NamedTuple

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
    """The entry points of `group`, as `_support.metadata.entry_points` finds them."""
    return tuple(
        EntryPoint(e.name, e.value, *metadata.identity(e.dist)) for e in metadata.entry_points(group)
    )
