"""Entry points of one group, as `importlib.metadata.entry_points(group=…)` gives them, only faster.

Directories on `sys.path` are scanned directly: one small read a distribution, and only files that hold
the group's name are parsed. What is not a plain directory (zip files, eggs, custom finders) goes through
`importlib.metadata`. The result is kept for as long as `sys.path` and its directories stay as they are.

Whoever may write to one of those directories must not be able to hang or fill every process that looks there:
only regular files are read, each up to `MOST_BYTES`, and what is passed over for that is told (`Unread`).
"""

from __future__ import annotations

import importlib
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, NamedTuple

from accel_core._text import clean
from accel_core.backend import Provenance
from accel_core.settings import normalize_distribution

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = [
    "MOST_BYTES",
    "EntryPoint",
    "Scan",
    "Unread",
    "find_entry_points",
    "name_of",
    "provenance",
    "scan",
    "scan_all",
]

#: The longest `entry_points.txt` that is read. The longest ones that are published have some 100 kB.
MOST_BYTES = 1 << 20
_READ = 4096
#: Without it, opening a FIFO waits for somebody to write.
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
#: Groups that one choice asks for: the files are read once for all of them.
_TOGETHER = ("accel.backends", "torch.backends", "accel.adapters")
_INFO = (".dist-info", ".egg-info")


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


class Unread(NamedTuple):
    """A distribution of which nobody can say what its entry points are."""

    distribution: str
    version: str
    #: The file, what is wrong with it, and what is expected; a clause.
    reason: str


class Scan(NamedTuple):
    """What one look at `sys.path` gave for a group."""

    entry_points: tuple[EntryPoint, ...]
    #: Of any group: what could not be read may name this one.
    unread: tuple[Unread, ...]


class _Installed(NamedTuple):
    """One distribution on the path; `text` is set where its entry points name the group."""

    normalized: str
    text: str | None = None
    home: str = ""
    distribution: Distribution | None = None
    #: Why its entry points are not read, where they should not be.
    fault: str = ""


class _UnfitError(Exception):
    """A file that is not read, and why."""


_Key = tuple[object, ...]
_memo: dict[str, tuple[_Key, Scan]] = {}


def find_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of `group`, in the order of `sys.path`.

    Of several distributions of one name the first on `sys.path` counts, as for `importlib.metadata`. A
    distribution whose metadata cannot be read is passed over; it never hides another.
    """
    return scan(group).entry_points


def scan(group: str) -> Scan:
    """The same, and the distributions whose `entry_points.txt` is too long, or no regular file."""
    return scan_all(_TOGETHER if group in _TOGETHER else (group,))[group]


def scan_all(groups: tuple[str, ...]) -> dict[str, Scan]:
    """The same of several groups, for which each file is read once."""
    key = _key()
    unknown = tuple(group for group in groups if group not in _memo or _memo[group][0] != key)
    if unknown:
        installed = tuple(_first_of_each_name(_distributions(unknown)))
        unread = tuple(Unread(*_identity(item), item.fault) for item in installed if item.fault)
        _memo.update({each: (key, Scan(tuple(_entry_points(installed, each)), unread)) for each in unknown})
    return {group: _memo[group][1] for group in groups}


def _key() -> _Key:
    """What the result depends on: the finders, and every path entry with its time of change."""
    return (tuple(map(id, sys.meta_path)), *((entry, _mtime(entry)) for entry in sys.path))


def _mtime(entry: str) -> int | None:
    try:
        return os.stat(entry or ".").st_mtime_ns
    except (OSError, TypeError, ValueError):
        return None


def _distributions(groups: tuple[str, ...]) -> Iterator[_Installed]:
    if any(map(_is_custom_finder, sys.meta_path)):
        everything = _from_importlib(None)
        if everything is not None:
            yield from _read_all(everything, groups)
            return
    for entry in sys.path:
        if not isinstance(entry, (str, os.PathLike)):
            continue
        root = os.fspath(entry) or "."
        names = None if root.lower().rstrip("/\\").endswith(".egg") else _listing(root)
        if names is None:
            yield from _read_all(_from_importlib([root]) or (), groups)
        else:
            yield from _in_directory(root, names, groups)


def _is_custom_finder(finder: object) -> bool:
    """Whether a finder brings distributions of its own (the backport's is the standard one again)."""
    return (
        finder is not PathFinder
        and hasattr(finder, "find_distributions")
        and not type(finder).__module__.startswith("importlib_metadata")
    )


def _listing(root: str) -> list[str] | None:
    """Names in a directory; none where there is nothing to read; `None` where it is not a directory."""
    try:
        return os.listdir(root)
    except NotADirectoryError:
        return None
    except (OSError, ValueError):
        return []


def _in_directory(root: str, names: list[str], groups: tuple[str, ...]) -> Iterator[_Installed]:
    needles = [group.encode() for group in groups]
    for name in names:
        if name.lower().endswith(_INFO):
            normalized, home = _normalize(name.rpartition(".")[0].partition("-")[0]), f"{root}/{name}"
            try:
                data = _read(f"{home}/entry_points.txt")
            except _UnfitError as error:
                yield _Installed(normalized, home=home, fault=str(error))
                continue
            text = data.decode("utf-8", "replace") if data and any(n in data for n in needles) else None
            yield _Installed(normalized, text, home, None, "")


def _read(path: str) -> bytes:
    """The file's bytes; empty where it is missing or cannot be read.

    Raises `_UnfitError` for what is no regular file, and for more than `MOST_BYTES`.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        return b""
    try:
        _require_fit(path, os.fstat(descriptor))
        # One read takes nearly every such file whole; a larger buffer costs more than the read.
        data = os.read(descriptor, _READ)
        if len(data) == _READ:
            parts, size = [data], _READ
            while size <= MOST_BYTES and (more := os.read(descriptor, 1 << 16)):
                parts.append(more)
                size += len(more)
            _require_short(path, size)  # it may have grown since
            data = b"".join(parts)
        return data
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _require_fit(path: str, status: os.stat_result) -> None:
    """Raise `_UnfitError` for what is no regular file, and for one that is too long."""
    if not stat.S_ISREG(status.st_mode):
        raise _UnfitError(f"{path} is {_kind(status.st_mode)}, expected a regular file")
    _require_short(path, status.st_size)


def _require_short(path: str, size: int) -> None:
    if size > MOST_BYTES:
        raise _UnfitError(f"{path} has more than {MOST_BYTES} bytes, which is the most that is read")


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _normalize(name: str) -> str:
    """As `importlib.metadata` compares names; the regular expression only where it changes something."""
    low = name.lower()
    if "." in low or "-" in low or "__" in low:
        return re.sub(r"[-_.]+", "_", low)
    return low


def _from_importlib(path: list[str] | None) -> list[Distribution] | None:
    """The distributions on `path`, or of all finders; `None` where a finder of somebody else's fails."""
    from accel_core._support.metadata import distributions

    try:
        return list(distributions(path))
    except Exception:
        return None


def _read_all(distributions: Iterable[Distribution], groups: tuple[str, ...]) -> Iterator[_Installed]:
    from accel_core._support.metadata import folder_of

    for distribution in distributions:
        folder = folder_of(distribution)
        try:
            # importlib would open whatever is there; what it reads from an archive can only be measured.
            _require_all_fit(folder)
            text = distribution.read_text("entry_points.txt") or ""
            _require_short(f"entry_points.txt in {getattr(distribution, '_path', distribution)}", len(text))
            name = getattr(distribution, "_normalized_name", None) or distribution.metadata["Name"]
        except _UnfitError as error:
            home = folder or str(getattr(distribution, "_path", ""))
            yield _Installed(_normalize(_stem(home)[0]), home=home, fault=str(error))
            continue
        except Exception:  # a neighbour's broken metadata must not hide anyone else
            continue
        wanted = text if any(group in text for group in groups) else None
        yield _Installed(_normalize(name or ""), wanted, distribution=distribution)


def _require_all_fit(folder: str) -> None:
    for file in ("entry_points.txt", "METADATA", "PKG-INFO") if folder else ():
        path = f"{folder}/{file}"
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            continue
        _require_fit(path, status)


def _first_of_each_name(installed: Iterable[_Installed]) -> Iterator[_Installed]:
    seen = set()
    for item in installed:
        if item.normalized not in seen:
            seen.add(item.normalized)
            if item.text is not None or item.fault:
                yield item


def _entry_points(installed: Iterable[_Installed], group: str) -> Iterator[EntryPoint]:
    for item in installed:
        pairs = list(_section(item.text or "", group))
        if pairs:
            distribution, version = _identity(item)
            yield from (EntryPoint(name, value, distribution, version) for name, value in pairs)


def _section(text: str, group: str) -> Iterator[tuple[str, str]]:
    """The `name = value` lines of one section."""
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            inside = line.strip("[]") == group
        elif inside and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def _identity(item: _Installed) -> tuple[str, str]:
    """A distribution's name and version, from its metadata file or else from its folder's name."""
    if item.distribution is not None:
        try:
            metadata = item.distribution.metadata
            return metadata["Name"] or item.normalized, metadata["Version"] or ""
        except Exception:  # unreadable metadata: the normalised name is what is left
            return item.normalized, ""
    name, version = _stem(item.home)
    for file in ("METADATA", "PKG-INFO"):
        try:
            headers = _headers(_read(f"{item.home}/{file}"))
        except _UnfitError:  # the folder's name is what is left
            continue
        if headers:
            return headers.get("name", name), headers.get("version", version)
    return name, version


def _stem(home: str) -> tuple[str, str]:
    """Name and version as the folder has them; of an egg its own, which holds its `EGG-INFO`."""
    folder = home.rstrip("/\\")
    if os.path.basename(folder).upper() == "EGG-INFO":
        folder = os.path.dirname(folder)
    name, _, version = os.path.basename(folder).rpartition(".")[0].partition("-")
    return name, version


def _headers(data: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        if not line.strip():
            break
        key, colon, value = line.partition(":")
        if colon:
            headers.setdefault(key.lower(), value.strip())
    return headers
