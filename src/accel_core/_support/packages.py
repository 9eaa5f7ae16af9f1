"""Installed distributions and their entry points, and packages, asked without importing them."""

from __future__ import annotations

import functools
import logging
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib import metadata

__all__ = [
    "brought_by", "distributions", "entry_points", "folder_of", "identity", "is_installed", "package_folders",
    "read", "version",
]  # fmt: skip

_log = logging.getLogger(__name__)


def distributions() -> list[metadata.Distribution]:
    """The installed distributions, in the order of `sys.path`."""
    from importlib import metadata  # these here: without torch it takes longer to import than all of ours

    try:
        return list(metadata.distributions())
    except Exception:  # a finder of somebody else's fails
        return list(metadata.MetadataPathFinder.find_distributions())


def entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of `group` of all installed distributions, in the order of `sys.path`.

    Of several distributions of one name the first on `sys.path` counts. A distribution whose metadata cannot
    be read is passed over with a line in the log; it never hides another. Nothing is read again while
    `sys.path`, its folders and the finders stay as they are.
    """
    return _in_group(group, _state_of_the_path())


def _state_of_the_path() -> tuple[object, ...]:
    """Return a value that differs once the path has changed: the finders, and each entry with its mtime."""
    return (*map(id, sys.meta_path), *((str(entry), _mtime(entry)) for entry in sys.path))


def _mtime(entry: str) -> int | None:
    try:
        return os.stat(entry or ".").st_mtime_ns  # noqa: PTH116
    except (OSError, TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=16)
def _in_group(group: str, state: tuple[object, ...]) -> tuple[metadata.EntryPoint, ...]:
    """The entry points of `group`, one distribution after the other, as `importlib.metadata` parses them.

    Its own `entry_points()` parses every distribution's, and fails for all over one that is broken.
    """
    found: list[metadata.EntryPoint] = []
    for distribution, text in _listed(state):
        if group in text:
            try:
                found += [e for e in distribution.entry_points if e.group == group]
            except Exception as error:
                _pass_over(distribution, error)
    return tuple(found)


@functools.lru_cache(maxsize=1)
def _listed(_: tuple[object, ...]) -> tuple[tuple[metadata.Distribution, str], ...]:
    """The first distribution of each name, with its `entry_points.txt`."""
    known: dict[str, tuple[metadata.Distribution, str]] = {}
    for distribution in distributions():
        try:
            name: str = distribution._normalized_name  # type: ignore[attr-defined]
            if name not in known:
                known[name] = distribution, distribution.read_text("entry_points.txt") or ""
        except Exception as error:
            _pass_over(distribution, error)
    return tuple(known.values())


def _pass_over(distribution: metadata.Distribution, error: Exception) -> None:
    where = getattr(distribution, "_path", distribution)
    _log.warning("%s is passed over, as its metadata cannot be read: %s", where, error)


def identity(distribution: metadata.Distribution | None) -> tuple[str, str]:
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


def brought_by(module: str) -> tuple[str, str]:
    """Name and version of the distribution with that module: by its name, else by its `RECORD`; or empty."""
    from importlib import metadata

    def lists(distribution: metadata.Distribution) -> bool:
        try:
            return f"\n{module.replace('.', '/')}/" in f"\n{distribution.read_text('RECORD')}"
        except (OSError, ValueError):
            return False

    if not package_folders(module):
        return "", ""
    own = metadata.distributions(name=module.partition(".")[0])
    return identity(next(iter(own), None) or next(filter(lists, distributions()), None))


def version(distribution: str) -> str | None:
    """The version of an installed distribution; `None` where there is none, or none that can be read."""
    from importlib import metadata

    try:
        return metadata.version(distribution) if distribution else None
    except Exception:  # not installed, or metadata that is broken in one of many ways
        return None


def read(distribution: str, name: str) -> str:
    """The text of one of its metadata files; empty where there is none."""
    from importlib import metadata

    try:
        return metadata.distribution(distribution).read_text(name) or ""
    except Exception:  # as above
        return ""


def folder_of(distribution: metadata.Distribution) -> str:
    """The folder that holds its metadata; empty for an archive's, and for what another finder made up."""
    path = getattr(distribution, "_path", None)  # public nowhere
    return os.fspath(path) if isinstance(path, os.PathLike) else ""


# --- Packages ------------------------------------------------------------------------------------------


def is_installed(name: str) -> bool:
    """Whether the package of the module `name` (`"torch_npu"`, `"habana_frameworks.torch"`) is installed.

    Nothing is imported for the answer, so below a package with an `__init__` no deeper level is asked. A
    folder without one is a namespace, in which anybody's files may lie: there the next level decides, and a
    bare folder that only has the right name is no package. An import that is forbidden by `None` in
    `sys.modules`, or that a finder fails at, counts as not installed.
    """
    return _spec(name) is not None


def package_folders(name: str) -> list[str]:
    """The folders of the installed package `name`; none where it is a single file, or not installed."""
    spec = _spec(name)
    return list((spec and spec.submodule_search_locations) or ())


def _spec(name: str) -> ModuleSpec | None:
    top, _, below = name.partition(".")
    if sys.modules.get(top, sys) is None:  # how an import is forbidden
        return None
    spec = _found(top)
    qualified = top
    while spec is not None and spec.origin is None and spec.submodule_search_locations is not None:
        if not below:
            return None
        part, _, below = below.partition(".")
        qualified = f"{qualified}.{part}"
        spec = PathFinder.find_spec(qualified, list(spec.submodule_search_locations))
    return spec


def _found(top: str) -> ModuleSpec | None:
    try:
        return find_spec(top)
    except (ImportError, ValueError):  # a finder that fails, or a module made by hand, without a spec
        return ModuleSpec(top, None, origin="sys.modules") if top in sys.modules else None
