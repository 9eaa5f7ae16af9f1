"""Installed distributions and their entry points, and packages, asked without importing them."""

import functools
import os
import sys
import threading
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import suppress
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import Any, TypeVar

from accel_core.backend import Provenance
from accel_core.log import LOGGER
from accel_core.text import one_line

T = TypeVar("T")


def entry_points(group: str) -> tuple[Provenance, ...]:
    """The entry points of `group` of all installed distributions, in the order of `sys.path`.

    Of several distributions of one name the first on `sys.path` counts. A distribution whose metadata cannot
    be read is passed over with a line in the log; it never hides another. Nothing is read again while
    `sys.path`, its folders and the finders of distributions stay as they are.
    """
    finders = (id(finder) for finder in sys.meta_path if hasattr(finder, "find_distributions"))
    return _in_group(group, (*finders, *((str(entry), _mtime(entry)) for entry in sys.path)))


def _mtime(entry: str) -> int | None:
    with suppress(OSError, TypeError, ValueError):
        return os.stat(entry or ".").st_mtime_ns  # noqa: PTH116
    return None


@functools.lru_cache(maxsize=16)
def _in_group(group: str, state: tuple[object, ...]) -> tuple[Provenance, ...]:
    found: list[Provenance] = []
    for distribution, text in _announcing(state):
        if group in text:
            parsed = _asked(metadata.EntryPoints(), lambda each: each.entry_points, distribution)
            name, version = map(one_line, identity(distribution))  # which may hold anything
            found += [Provenance(name, version, e.name, e.value) for e in parsed if e.group == group]
    return tuple(found)


@functools.lru_cache(maxsize=1)
def _announcing(_: tuple[object, ...]) -> list[tuple[metadata.Distribution, str]]:
    """The first distribution of each name, with its `entry_points.txt`."""
    known: dict[str, metadata.Distribution] = {}
    for distribution in distributions():
        known.setdefault(identity(distribution)[0].lower().replace(".", "-"), distribution)
    return [(each, _asked("", _entry_points_text, each)) for each in known.values()]


def _entry_points_text(distribution: metadata.Distribution) -> str:
    folder = getattr(distribution, "_path", None)  # public nowhere
    if not isinstance(folder, os.PathLike):  # in an archive, or what another finder made up
        return distribution.read_text("entry_points.txt") or ""
    try:  # not by `read_text`, which takes twice as long
        with open(f"{folder}/entry_points.txt", encoding="utf-8") as file:  # noqa: PTH123
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


def _asked(otherwise: T, ask: Callable[[Any], T], whom: object) -> T:
    """The answer, or `otherwise`: metadata is missing or broken in many ways. Broken metadata is logged."""
    try:
        return ask(whom)
    except Exception as error:
        if not isinstance(error, metadata.PackageNotFoundError):
            who = getattr(whom, "_path", whom)
            LOGGER.warning("%s is passed over, as its metadata cannot be read: %s", who, error)
        return otherwise


def distributions() -> list[metadata.Distribution]:
    """The installed distributions, in the order of `sys.path`.

    Where the program handles signals, a thread looks for them. A handler runs in the main one, and what it
    raises while a folder is listed is dropped by importlib.metadata, which takes the folder for empty then.
    """
    import signal  # here, as importing accel_core costs nothing

    found: list[metadata.Distribution] = []
    done = threading.Semaphore(0)

    # Our own finder where one of somebody else's fails.
    def look(ours: Any = metadata.MetadataPathFinder.find_distributions) -> None:
        try:
            found[:] = _asked(None, lambda find: list(find()), metadata.distributions) or ours()
        finally:
            done.release()

    with suppress(RuntimeError):  # there are as many threads as the user may have, or Python ends
        handlers = {*map(signal.getsignal, range(1, signal.NSIG))} - {signal.default_int_handler}
        if any(map(callable, handlers)):
            start_new_thread(look, ())  # not `threading.Thread`, which an exception amid its start confuses
            done.acquire()
            return found
    look()
    return found


def identity(distribution: metadata.Distribution) -> tuple[str, str]:
    """Return a distribution's name and version, from its folder's name or else from its metadata."""
    stem, _, kind = getattr(getattr(distribution, "_path", None), "name", "").rpartition(".")
    name, _, version = stem.partition("-")
    if kind == "dist-info" and version:
        return name.replace("_", "-"), version
    return _asked((name, version), lambda each: (each.metadata["Name"], each.version), distribution)


def brought_by(module: str) -> tuple[str, str]:
    """Return name and version of the distribution that contains the module; two empty texts if none
    is found.
    """
    if not package_folders(module):
        return "", ""
    line = f"\n{module.replace('.', '/')}/"
    own = metadata.distributions(name=module.partition(".")[0])
    records = ((each, _asked("", lambda d: d.read_text("RECORD") or "", each)) for each in distributions())
    found = next(iter(own), None) or next((each for each, text in records if line in f"\n{text}"), None)
    return _asked(("", ""), lambda each: (each.name, each.version), found) if found else ("", "")


def version(distribution: str) -> str | None:
    """Return the version of an installed distribution; `None` if it is not installed or cannot be read."""
    if not distribution:
        return None
    return _asked(None, lambda name: identity(metadata.distribution(name))[1], distribution)


def requirement(text: str) -> tuple[str, str | None, bool]:
    """Return the name that a PEP 508 requirement names, its installed version, and whether it is met.

    One with a marker that does not apply is met. Raises `ValueError`, as packaging does for all that is
    malformed, also for a marker that cannot be evaluated.
    """
    from packaging.requirements import Requirement  # here, as few plugins require a version

    wanted = Requirement(text)
    applies = wanted.marker is None or wanted.marker.evaluate()
    installed = version(wanted.name)
    fits = installed is not None and wanted.specifier.contains(installed, prereleases=True)
    return wanted.name, installed, fits or not applies


def read(distribution: str, name: str) -> str:
    """Return the text of one of the distribution's metadata files; empty if it has no such file."""
    return _asked("", lambda each: metadata.distribution(each).read_text(name) or "", distribution)


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
    """Return the folders of the installed package `name`; none for a single-file module or one not
    installed.
    """
    return list(getattr(_spec(name), "submodule_search_locations", None) or ())


def _spec(name: str) -> ModuleSpec | None:
    top, *below = name.split(".")
    if sys.modules.get(top, sys) is None:  # how an import is forbidden
        return None
    spec = ModuleSpec(top, None, origin="sys.modules") if top in sys.modules else None
    with suppress(ImportError, ValueError):  # a finder that fails, or a module made by hand, without a spec
        spec = find_spec(top)
    for part in below:
        if spec is None or spec.origin is not None or spec.submodule_search_locations is None:
            return spec
        spec = PathFinder.find_spec(f"{spec.name}.{part}", list(spec.submodule_search_locations))
    is_bare = spec is not None and spec.origin is None and spec.submodule_search_locations is not None
    return None if is_bare else spec
