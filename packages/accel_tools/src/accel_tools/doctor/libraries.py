"""Find libraries that extension modules need and the dynamic loader would not find.

pyelftools, which `accel-tools[doctor]` installs, reads the ELF headers of the libraries. The
libraries are not loaded. Folders are searched in the order of
https://man7.org/linux/man-pages/man8/ld.so.8.html. This works only on Linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import hardware
from accel_core.hardware import vendors

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

__all__ = ["NOT_FOUND", "UnmetNeed", "unmet_needs", "why_unknown"]

#: The value of `UnmetNeed.why` for a library that is not found.
NOT_FOUND = "it is not found"
#: The flag VER_FLG_WEAK of a symbol version that the loader does not require.
_WEAK = 2


class UnmetNeed(NamedTuple):
    """A library that another library needs and the loader would not find."""

    #: The name of the needed library, such as `"libhccl.so"`, or the path of a library that cannot be
    #: read.
    name: str
    #: The path of the library that needs it; empty for a library that cannot be read.
    needed_by: str
    #: The reason as a clause, such as `"/usr/lib/libstdc++.so.6 lacks GLIBCXX_3.4.32"`.
    why: str


def why_unknown() -> str:
    """Return why libraries cannot be examined, and the next step; empty if they can be examined."""
    if find_spec("elftools"):
        return ""
    install = vendors.install_command("accel-tools", extra="doctor")
    return f"unknown, because pyelftools is not installed: {install}"


def unmet_needs(
    paths: Iterable[str], environ: Mapping[str, str], loaded: Sequence[str] = ()
) -> Iterator[UnmetNeed]:
    """Yield the missing direct and indirect dependencies of libraries, direct dependencies first.

    A missing dependency is yielded once for each library that needs it. A library that cannot be
    read is yielded as a missing dependency too. Nothing is yielded if pyelftools is not installed
    (`why_unknown`).

    Args:
        paths: The paths of the libraries.
        environ: The environment variables, from which `LD_LIBRARY_PATH` is used.
        loaded: Folders with libraries that a program has loaded before, or that it loads by their
            paths. All names in these folders count as available.
    """
    if why_unknown():
        return
    available = set(chain.from_iterable(map(hardware.names_in, loaded)))
    loader = _Loader(environ.get("LD_LIBRARY_PATH", ""), available)
    visited: set[str] = set()
    queue = deque((path, loader.python_rpath()) for path in paths)
    while queue:
        path, inherited = queue.popleft()
        real_path = os.path.realpath(path)
        if real_path in visited:
            continue
        visited.add(real_path)
        try:
            library = loader.read(path)
        except Exception as error:  # pyelftools may raise any error on a damaged file.
            yield UnmetNeed(path, "", f"it cannot be read: {_clause(error)}")
            continue
        loader.register(library.soname, path)
        # An rpath also applies to indirect dependencies, but a runpath only to direct dependencies.
        rpath = inherited if library.runpath else (*library.rpath, *inherited)
        for name in library.needed:
            dependency, why = loader.find(name, library, rpath)
            if dependency:
                yield from _missing_versions(loader, name, dependency, path)
                queue.append((dependency, rpath))
            elif why:
                yield UnmetNeed(name, path, why)


def _missing_versions(
    loader: _Loader, name: str, dependency: str, needed_by: str
) -> Iterator[UnmetNeed]:
    """Yield an unmet need if `dependency` lacks symbol versions that `needed_by` requires."""
    provided = loader.read(dependency).provides
    if not provided:
        return
    required = loader.read(needed_by).requires.get(name, ())
    missing = [version for version in required if version not in provided]
    if missing:
        yield UnmetNeed(name, needed_by, f"{dependency} lacks {', '.join(missing)}")


# --- ELF headers ---------------------------------------------------------------------


class _Elf(NamedTuple):
    """The parts of a library's headers that determine whether it can be loaded."""

    #: The architecture, such as `"64-bit x64"`. A library can load only libraries with the same
    #: architecture.
    architecture: str
    #: The name by which other libraries need this library; empty if the library does not have one.
    soname: str
    #: The names of the libraries that this library needs.
    needed: tuple[str, ...]
    #: The folders in which the loader searches. `rpath` applies only if `runpath` is empty.
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    #: The required symbol versions by library, such as `{"libc.so.6": ("GLIBC_2.34",)}`.
    requires: Mapping[str, tuple[str, ...]]
    #: The symbol versions that the library defines.
    provides: frozenset[str]


def _read_elf(path: str) -> _Elf:
    """Return the headers of a library; raise `OSError` or any error of pyelftools on failure."""
    from elftools.elf.elffile import ELFFile

    with open(path, "rb") as file:  # noqa: PTH123
        elf = ELFFile(file)
        sections = dict(_sections(elf))
        tags = _dynamic_tags(sections.get(_DYNAMIC))
        return _Elf(
            architecture=f"{elf.elfclass}-bit {elf.get_machine_arch()}",
            soname="".join(tags["soname"][:1]),
            needed=tuple(tags["needed"]),
            rpath=_expand_origin(tags["rpath"], path),
            runpath=_expand_origin(tags["runpath"], path),
            requires=_required_versions(sections.get(_VERSIONS_NEEDED)),
            provides=_defined_versions(sections.get(_VERSIONS_DEFINED)),
        )


_DYNAMIC = "SHT_DYNAMIC"
_VERSIONS_NEEDED = "SHT_GNU_verneed"
_VERSIONS_DEFINED = "SHT_GNU_verdef"


def _sections(elf: ELFFile) -> Iterator[tuple[str, Any]]:
    """Yield the type and the section of each dynamic and version section.

    Sections of other types, such as hash tables, are skipped, because they are slow to read.
    """
    from elftools.common.exceptions import ELFError, ELFParseError

    types = (_DYNAMIC, _VERSIONS_NEEDED, _VERSIONS_DEFINED)
    for index in range(elf.num_sections()):
        try:
            section = elf.get_section(index, types)
        except ELFParseError:
            raise
        except ELFError:  # The section has a different type.
            continue
        yield section["sh_type"], section


def _dynamic_tags(section: Any) -> dict[str, list[str]]:
    """Return the values of the dynamic tags that name libraries and folders."""
    values: dict[str, list[str]] = {
        "soname": [],
        "needed": [],
        "rpath": [],
        "runpath": [],
    }
    if section is None:
        return values
    for tag in section.iter_tags():
        kind = str(tag.entry.d_tag).removeprefix("DT_").lower()
        if kind in values:
            values[kind].append(getattr(tag, kind))
    return values


def _required_versions(section: Any) -> dict[str, tuple[str, ...]]:
    """Return the required symbol versions by library, without weak versions."""
    required: dict[str, tuple[str, ...]] = {}
    if section is None:
        return required
    for library, versions in section.iter_versions():
        names = [v.name for v in versions if not v["vna_flags"] & _WEAK]
        required[library.name] = tuple(names)
    return required


def _defined_versions(section: Any) -> frozenset[str]:
    if section is None:
        return frozenset()
    # The first name is the name of the version; the names of its parents follow.
    return frozenset(next(names).name for _, names in section.iter_versions())


def _expand_origin(lists: Iterable[str], path: str) -> tuple[str, ...]:
    """Return the folders of lists such as `"a:b"`, with `$ORIGIN` replaced by the folder of `path`."""
    origin = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    folders = []
    for text in lists:
        expanded = text.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        folders += [folder for folder in expanded.split(":") if folder]
    return tuple(folders)


# --- The loader ----------------------------------------------------------------------


class _Loader:
    """Find libraries as the dynamic loader does, and remember the libraries that were found."""

    def __init__(self, ld_library_path: str, available: Set[str]) -> None:
        #: Names of libraries that are loaded by other means.
        self._available = available
        self._ld_library_path: list[str] = []
        if ld_library_path:
            entries = ld_library_path.replace(";", ":").split(":")
            # An empty entry stands for the working folder.
            self._ld_library_path = [entry or "." for entry in entries]
        self._cache = _ld_cache()
        self._elfs: dict[str, _Elf] = {}
        #: The paths of loaded libraries by name.
        self._loaded: dict[str, str] = {}

    def read(self, path: str) -> _Elf:
        """Return the headers of a library; raise `OSError` or any error of pyelftools on failure."""
        if path not in self._elfs:
            self._elfs[path] = _read_elf(path)
        return self._elfs[path]

    def register(self, name: str, path: str) -> None:
        """Remember that the library `name` is loaded from `path`, unless it already has a path."""
        self._loaded.setdefault(name, path)

    def python_rpath(self) -> tuple[str, ...]:
        """Return the rpath of the Python executable, which applies to all libraries that it loads.

        conda's Python has an rpath.
        """
        try:
            return self.read(sys.executable).rpath
        except Exception:  # The executable may not be an ELF file.
            return ()

    def find(self, name: str, needed_by: _Elf, rpath: Sequence[str]) -> tuple[str, str]:
        """Return the path of the library `name`, and the reason if it is not found.

        The path is empty if the library is not found, and the reason is empty if it is found. Both
        are empty for a library that is loaded by other means.

        Args:
            name: The name of the library.
            needed_by: The headers of the library that needs it.
            rpath: The rpaths of `needed_by` and of the libraries that need `needed_by`. They apply
                only if `needed_by` has no runpath.
        """
        if name not in self._loaded:
            path, why = self._search(name, needed_by, rpath)
            if not path:
                return "", "" if name in self._available else why
            self.register(name, path)
        return self._loaded[name], ""

    def _search(
        self, name: str, needed_by: _Elf, rpath: Sequence[str]
    ) -> tuple[str, str]:
        """Return the path of the first suitable file and an empty reason, or an empty path and a reason."""
        other_architecture = ""
        for path in self._candidate_paths(name, needed_by, rpath):
            if not os.path.isfile(path):  # noqa: PTH113
                continue
            try:
                architecture = self.read(path).architecture
            except Exception as error:  # The loader would fail on this file too.
                return "", f"{path} cannot be loaded: {_clause(error)}"
            if architecture == needed_by.architecture:
                return path, ""
            if not other_architecture:
                other_architecture = (
                    f"{path} is for {architecture}, not {needed_by.architecture}"
                )
        return "", other_architecture or NOT_FOUND

    def _candidate_paths(
        self, name: str, needed_by: _Elf, rpath: Sequence[str]
    ) -> list[str]:
        """Return the paths at which the loader looks for the library `name`, in the loader's order."""
        if "/" in name:
            return [name]
        inherited = () if needed_by.runpath else rpath
        folders = (*inherited, *self._ld_library_path, *needed_by.runpath)
        return [
            *(f"{folder}/{name}" for folder in folders),
            *self._cache.get(name, ()),
            *(f"{folder}/{name}" for folder in _DEFAULT_FOLDERS),
        ]


_TRIPLET = sysconfig.get_config_var("MULTIARCH") or "."
#: The folders that the loaders of glibc, Debian (one folder per architecture) and musl search by default.
_DEFAULT_FOLDERS = (
    f"/lib/{_TRIPLET}",
    "/lib64",
    "/lib",
    f"/usr/lib/{_TRIPLET}",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)


def _ld_cache() -> dict[str, list[str]]:
    """Return the paths in the loader's cache by library name, in the order of the cache.

    The result is empty if `ldconfig` is not installed.
    """
    path = f"{os.environ.get('PATH', os.defpath)}:/sbin:/usr/sbin"
    program = shutil.which("ldconfig", path=path)
    if program is None:
        return {}
    completed = subprocess.run(
        [program, "-p"], capture_output=True, text=True, errors="replace", check=False
    )
    paths: dict[str, list[str]] = {}
    for line in completed.stdout.splitlines():
        name, arrow, library = line.strip().partition(" => ")
        if arrow:
            paths.setdefault(name.partition(" ")[0], []).append(library)
    return paths


def _clause(error: Exception) -> str:
    """Return the error's message without its full stop."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).rstrip(".")
