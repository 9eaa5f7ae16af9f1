"""Shared libraries as the dynamic loader would find them, worked out from their headers: nothing is loaded.

The order is that of https://man7.org/linux/man-pages/man8/ld.so.8.html. Linux only.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from accel_core.doctor.elf import Elf, architecture, read_elf
from accel_core.machine import host

__all__ = ["NOT_FOUND", "Unmet", "ld_cache", "unmet_needs"]


#: `Unmet.why` of most.
NOT_FOUND = "it is not found"


class Unmet(NamedTuple):
    """A library that somebody needs, and would not get."""

    #: The name that is needed: `"libhccl.so"`; or the path of a library that cannot be read itself.
    name: str
    #: The path of who needs it.
    needed_by: str
    #: Why not, as a clause: `"it is not found"`, `"/usr/lib/libstdc++.so.6 lacks GLIBCXX_3.4.32"`.
    why: str


#: No package that we know has a tenth as many; keeps what is made up from taking long.
_MOST_FILES = 1000
_MOST_LOOKS = 100_000
#: Bytes of the loader's cache that are read; that of a full desktop has 200 KiB.
_LARGEST_CACHE = 16 << 20


def unmet_needs(
    paths: Iterable[str], environ: Mapping[str, str], loaded: Sequence[str] = (), root: str = "/"
) -> tuple[Unmet, ...]:
    """What the libraries `paths`, and those that they need in turn, need and would not get.

    `environ`: where `LD_LIBRARY_PATH` is sought. `loaded`: folders of libraries that are loaded before, or by
    their paths: what is not found, and has a name there, is there. `root`: the folder under which the
    loader's own are sought. One that cannot be read is an answer too, not an error.
    """
    return tuple(_Walk(environ, loaded, root).unmet(paths))


class _Loader(NamedTuple):
    """A library on the way to be loaded, and who needs it."""

    path: str
    elf: Elf
    by: _Loader | None = None


class _Walk:
    def __init__(self, environ: Mapping[str, str], loaded: Sequence[str], root: str) -> None:
        self._there = {name for folder in loaded for name in host.names_in(folder)}
        variable = environ.get("LD_LIBRARY_PATH", "")
        # An empty entry means the current folder.
        self._variable = [entry or "." for entry in variable.replace(";", ":").split(":")] if variable else []
        self._cache = ld_cache(root)
        self._defaults = [host.below(root, folder) for folder in _default_folders()]
        self._main = _python()
        self._looks = 0
        #: Those that are found, by the names under which the loader knows them from then on.
        self._found: dict[str, str] = {}

    def unmet(self, paths: Iterable[str]) -> Iterator[Unmet]:
        """Each need once for each who has it, nearest first."""
        waiting = deque((path, self._main) for path in paths)
        seen: set[str] = set()
        while waiting:
            path, by = waiting.popleft()
            if len(seen) >= _MOST_FILES or self._looks >= _MOST_LOOKS:
                yield Unmet(path, "", "it was not looked into: there are too many before it")
                return
            if (real := os.path.realpath(path)) in seen:
                continue
            seen.add(real)
            try:
                loader = _Loader(path, read_elf(path), by)
            except (OSError, ValueError) as error:
                yield Unmet(path, by.path if by and by is not self._main else "", _unreadable(error))
                continue
            self._found.setdefault(loader.elf.soname, path)
            for name in loader.elf.needed:
                found, why = self._find(name, loader)
                if not found:
                    if name not in self._there:
                        yield Unmet(name, path, why)
                    continue
                self._found.setdefault(name, found)
                yield from _lacking(name, found, loader)
                waiting.append((found, loader))

    def _find(self, name: str, loader: _Loader) -> tuple[str, str]:
        """The path of the library, or why there is none."""
        if name in self._found:
            return self._found[name], ""
        unsuitable = ""
        for path in [name] if "/" in name else self._places(name, loader):
            self._looks += 1
            if self._looks > _MOST_LOOKS:
                return "", "too many places would have to be looked in"
            if not _is_regular(path):
                continue
            try:
                kind = architecture(path)
            except (OSError, ValueError) as error:
                # It is the first that would be taken, and its being damaged ends the search.
                return "", f"{path} cannot be loaded: {_clause(error)}"
            if kind == loader.elf.architecture:
                return path, ""
            unsuitable = unsuitable or f"{path} is for {kind}, not {loader.elf.architecture}"
        return "", unsuitable or NOT_FOUND

    def _places(self, name: str, loader: _Loader) -> Iterator[str]:
        folders: list[str] = []
        if not loader.elf.runpath:
            above: _Loader | None = loader
            while above is not None:
                if not above.elf.runpath:
                    folders += _expanded(above.elf.rpath, above.path)
                above = above.by
        folders += self._variable
        folders += _expanded(loader.elf.runpath, loader.path)
        yield from (f"{folder.rstrip('/')}/{name}" for folder in folders)
        yield from self._cache.get(name, ())
        yield from (f"{folder}/{name}" for folder in self._defaults)


def _python() -> _Loader | None:
    """This Python's own program, whose `rpath` counts for all that it loads; as conda's has one."""
    try:
        return _Loader(sys.executable, read_elf(sys.executable))
    except (OSError, ValueError):
        return None


def _lacking(name: str, found: str, loader: _Loader) -> Iterator[Unmet]:
    """The versions that `loader` needs of the library and that it does not have.

    One that has no versions at all is taken as it is, with a warning of the loader's.
    """
    needed = loader.elf.requires.get(name, ())
    if not needed:
        return
    try:
        provides = read_elf(found).provides
    except (OSError, ValueError):  # told when its own needs are looked at
        return
    missing = [version for version in needed if version not in provides] if provides else []
    if missing:
        yield Unmet(name, loader.path, f"{found} lacks {', '.join(missing)}")


def _expanded(folders: Iterable[str], path: str) -> Iterator[str]:
    """The folders with the loader's variables filled in."""
    origin = os.path.dirname(os.path.realpath(path))  # noqa: PTH120 - pathlib would be imported for this alone
    machine = os.uname().machine if hasattr(os, "uname") else ""
    for folder in folders:
        filled = folder
        for variable, value in (("ORIGIN", origin), ("PLATFORM", machine)):
            filled = filled.replace(f"${{{variable}}}", value).replace(f"${variable}", value)
        if "$LIB" in filled or "${LIB}" in filled:
            for value in _LIB:
                yield filled.replace("${LIB}", value).replace("$LIB", value)
        else:
            yield filled


_TRIPLET = sysconfig.get_config_var("MULTIARCH") or ""
#: What `$LIB` stands for: it depends on the distribution.
_LIB = ("lib64", "lib", *((f"lib/{_TRIPLET}",) if _TRIPLET else ()))


def _default_folders() -> Iterator[str]:
    """Those that every loader looks in: glibc's, Debian's for one architecture, and musl's."""
    for folder in ("/lib", "/usr/lib"):
        yield from ([f"{folder}/{_TRIPLET}"] if _TRIPLET else [])
        yield from (f"{folder}64", folder)
    yield "/usr/local/lib"


def _is_regular(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except (OSError, ValueError):
        return False


def _unreadable(error: Exception) -> str:
    return f"it cannot be read: {_clause(error)}"


def _clause(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).rstrip(".")


# --- The loader's cache --------------------------------------------------------------------------------
# glibc, sysdeps/generic/dl-cache.h: `struct cache_file_new`, in old files behind a `struct cache_file`.

_OLD, _NEW = b"ld.so-1.7.0", b"glibc-ld.so.cache1.1"
_OLD_ENTRY, _HEADER, _ENTRY = 12, 48, 24


def ld_cache(root: str = "/") -> dict[str, list[str]]:
    """Paths by name, in the order in which the loader takes them; none where the cache is missing or bad."""
    data = _cache_bytes(host.below(root, "/etc/ld.so.cache"))
    start = 0
    if data.startswith(_OLD):
        (count,) = struct.unpack_from("=I", data.ljust(16, b"\0"), 12)
        start = -(-(16 + count * _OLD_ENTRY) // 8) * 8  # the next is aligned
    if data[start : start + len(_NEW)] != _NEW or start + _HEADER > len(data):
        return {}
    (count,) = struct.unpack_from("=I", data, start + len(_NEW))
    if start + _HEADER + count * _ENTRY > len(data):
        return {}
    paths: dict[str, list[str]] = {}
    for _, key, value, _, _ in struct.iter_unpack("=iIIIQ", data[start + _HEADER :][: count * _ENTRY]):
        name, path = _string(data, start + key), _string(data, start + value)
        if name and path:
            paths.setdefault(name, []).append(host.below(root, path))
    return paths


def _cache_bytes(path: str) -> bytes:
    try:
        if not _is_regular(path):
            return b""
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(_LARGEST_CACHE)
    except OSError:
        return b""


def _string(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + 4096)
    return os.fsdecode(data[at:end]) if 0 <= at < end else ""
