"""Find libraries that extension modules need and the loader would not find, from ELF headers alone.

Nothing is loaded. pyelftools reads the headers; it comes with `accel-tools[doctor]`.
Folders are searched in the order of https://man7.org/linux/man-pages/man8/ld.so.8.html.
Linux only.
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

#: `UnmetNeed.why` of a library that is not found.
NOT_FOUND = "it is not found"
#: VER_FLG_WEAK: a version that the loader does not require.
_WEAK = 2


class UnmetNeed(NamedTuple):
    """A library that another library needs and the loader would not find."""

    #: The needed name, `"libhccl.so"`; or the path of a library that cannot be read.
    name: str
    #: The path of the library that needs it.
    needed_by: str
    #: The reason as a clause: `"it is not found"`, `"/usr/lib/libstdc++.so.6 lacks GLIBCXX_3.4.32"`.
    why: str


def why_unknown() -> str:
    """Return why libraries cannot be examined, with the next step; empty if pyelftools is installed."""
    if find_spec("elftools"):
        return ""
    install = vendors.install_command("accel-tools", extra="doctor")
    return f"unknown without pyelftools: {install}"


def unmet_needs(
    paths: Iterable[str], environ: Mapping[str, str], loaded: Sequence[str] = ()
) -> Iterator[UnmetNeed]:
    """Yield the missing dependencies of the libraries `paths`, and of their dependencies in turn.

    Each dependency is yielded once for each library that needs it, nearest first; none
    without pyelftools (`why_unknown`). `environ` holds `LD_LIBRARY_PATH`. `loaded` lists
    folders of libraries that are loaded earlier, or by their paths; every name in them
    counts as available. A library that cannot be read is yielded as a missing dependency.
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
        except Exception as error:  # any error of pyelftools on a damaged file
            yield UnmetNeed(path, "", f"it cannot be read: {_clause(error)}")
            continue
        loader.register(library.soname, path)
        # An rpath applies to all dependencies in turn, a runpath only to the library itself.
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
    """Yield that the library `dependency` lacks symbol versions that `needed_by` requires of it."""
    provided = loader.read(dependency).provides
    if not provided:
        return
    required = loader.read(needed_by).requires.get(name, ())
    missing = [version for version in required if version not in provided]
    if missing:
        yield UnmetNeed(name, needed_by, f"{dependency} lacks {', '.join(missing)}")


# --- ELF headers ---------------------------------------------------------------------


class _Elf(NamedTuple):
    """The parts of a library's headers that decide whether it can be loaded."""

    #: `"64-bit x64"`; a library can load only libraries of the same architecture.
    architecture: str
    #: The name under which others need the library; empty if it has none.
    soname: str
    needed: tuple[str, ...]
    #: Folders to search; `rpath` applies only without `runpath`.
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    #: Symbol versions that it requires of each library: `{"libc.so.6": ("GLIBC_2.34",)}`.
    requires: Mapping[str, tuple[str, ...]]
    #: Symbol versions that it defines.
    provides: frozenset[str]


def _read_elf(path: str) -> _Elf:
    """Return the headers of a library; raises any error of pyelftools, or `OSError`."""
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
    """Yield the sections of the three types, by type; others, such as hash tables, are slow to read."""
    from elftools.common.exceptions import ELFError, ELFParseError

    types = (_DYNAMIC, _VERSIONS_NEEDED, _VERSIONS_DEFINED)
    for index in range(elf.num_sections()):
        try:
            section = elf.get_section(index, types)
        except ELFParseError:
            raise
        except ELFError:  # a section of another type
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
    """Return the symbol versions that are required of each library, without weak ones."""
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
    # The first name is the version's own; its parents follow.
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
    """Finds libraries as the dynamic loader does, and remembers the ones that it has found."""

    def __init__(self, ld_library_path: str, available: Set[str]) -> None:
        #: Names of libraries that are loaded by other means.
        self._available = available
        self._ld_library_path: list[str] = []
        if ld_library_path:
            entries = ld_library_path.replace(";", ":").split(":")
            # An empty entry is the current folder.
            self._ld_library_path = [entry or "." for entry in entries]
        self._cache = _ld_cache()
        self._elfs: dict[str, _Elf] = {}
        #: Paths of loaded libraries, by the names under which the loader knows them.
        self._loaded: dict[str, str] = {}

    def read(self, path: str) -> _Elf:
        """Return the headers of the library; raises any error of pyelftools, or `OSError`."""
        if path not in self._elfs:
            self._elfs[path] = _read_elf(path)
        return self._elfs[path]

    def register(self, name: str, path: str) -> None:
        """Remember that the library `name` is loaded from `path`; the first path stays."""
        self._loaded.setdefault(name, path)

    def python_rpath(self) -> tuple[str, ...]:
        """Return the rpath of Python's program, which applies to all that it loads; conda sets one."""
        try:
            return self.read(sys.executable).rpath
        except Exception:  # not an ELF file
            return ()

    def find(self, name: str, needed_by: _Elf, rpath: Sequence[str]) -> tuple[str, str]:
        """Return the path of the library `name`, and an empty text; or an empty path, and why not.

        Both are empty for a library that is available by other means. `rpath`: the folders
        of `needed_by` and of the libraries above it; they apply only if `needed_by` has no
        runpath.
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
        """Return the path of the first suitable file, and an empty text; or why there is none."""
        other_architecture = ""
        for path in self._places(name, needed_by, rpath):
            if not os.path.isfile(path):  # noqa: PTH113
                continue
            try:
                architecture = self.read(path).architecture
            except Exception as error:  # the loader takes this file, and fails
                return "", f"{path} cannot be loaded: {_clause(error)}"
            if architecture == needed_by.architecture:
                return path, ""
            if not other_architecture:
                other_architecture = (
                    f"{path} is for {architecture}, not {needed_by.architecture}"
                )
        return "", other_architecture or NOT_FOUND

    def _places(self, name: str, needed_by: _Elf, rpath: Sequence[str]) -> list[str]:
        """Return the paths where the loader looks for `name`, in its order."""
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
#: Folders that every loader searches: glibc's, Debian's for one architecture, and musl's.
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
    """Return the paths in the loader's cache by library name, in its order; empty without `ldconfig`."""
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
    """Return the error's text without a full stop."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).rstrip(".")
