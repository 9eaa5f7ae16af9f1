"""Find the libraries that an extension module needs, but that the dynamic loader would not find.

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
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import hardware
from accel_core.hardware import vendors

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

__all__ = [
    "NOT_FOUND",
    "UnmetDependency",
    "find_unmet_dependencies",
    "why_not_examined",
]

#: The value of `UnmetDependency.reason` for a library that is not found.
NOT_FOUND = "it is not found"
#: The flag VER_FLG_WEAK of a symbol version that the loader does not require.
_WEAK_VERSION = 2


class UnmetDependency(NamedTuple):
    """A library that another library needs, but that the dynamic loader cannot find or load."""

    #: The name of the needed library, such as `"libhccl.so"`, or the path of a library that cannot be
    #: read.
    name: str
    #: The path of the library that needs the library `name`, or an empty string for a library that cannot
    #: be read.
    needed_by: str
    #: The reason as a clause, such as `"/usr/lib/libstdc++.so.6 lacks GLIBCXX_3.4.32"`.
    reason: str


def why_not_examined() -> str:
    """Return why libraries cannot be examined, and the next step.

    Returns an empty string if libraries can be examined.
    """
    is_pyelftools_installed = find_spec("elftools") is not None
    if is_pyelftools_installed:
        return ""
    command = vendors.install_command("accel-tools", extra="doctor")
    return f"unknown, because pyelftools is not installed (to install it: {command})"


def find_unmet_dependencies(
    paths: Iterable[str],
    environ: Mapping[str, str],
    folders_of_loaded: Sequence[str] = (),
) -> Iterator[UnmetDependency]:
    """Yield the missing direct and indirect dependencies of libraries, direct dependencies first.

    A missing dependency is yielded once for each library that needs it. A library that cannot be read is
    yielded as a missing dependency too. Nothing is yielded if pyelftools is not installed
    (`why_not_examined`).

    Args:
        paths: The paths of the libraries.
        environ: The environment variables. Only `LD_LIBRARY_PATH` is used.
        folders_of_loaded: Folders of libraries that a program has loaded before, or that it loads by their
            paths. The libraries in these folders do not count as missing.
    """
    if why_not_examined():  # pyelftools is not installed.
        return
    loaded_names: set[str] = set()
    for folder in folders_of_loaded:
        loaded_names.update(hardware.names_in(folder))
    loader = _Loader(environ.get("LD_LIBRARY_PATH", ""), loaded_names)
    visited: set[str] = set()
    # A library inherits the search path RPATH of the library that loads it.
    queue = deque((path, loader.python_rpath()) for path in paths)
    while queue:
        path, inherited_rpath = queue.popleft()
        real_path = os.path.realpath(path)
        if real_path in visited:
            continue
        visited.add(real_path)
        try:
            library = loader.read(path)
        except Exception as error:  # pyelftools may raise any error on a damaged file.
            reason = f"it cannot be read: {_error_clause(error)}"
            yield UnmetDependency(path, "", reason)
            continue
        loader.register(library.soname, path)
        rpath = library.rpath_of_dependencies(inherited_rpath)
        for name in library.needed:
            search_result = loader.find(name, library, rpath)
            if search_result.path:
                yield from _missing_versions(loader, name, search_result.path, path)
                queue.append((search_result.path, rpath))
            elif search_result.problem:
                yield UnmetDependency(name, path, search_result.problem)


def _missing_versions(
    loader: _Loader, name: str, dependency: str, needed_by: str
) -> Iterator[UnmetDependency]:
    """Yield an unmet dependency if a library lacks symbol versions that another library requires.

    Args:
        loader: The loader that reads the headers.
        name: The name of the library that may lack versions.
        dependency: The path of the library that may lack versions.
        needed_by: The path of the library that requires versions.
    """
    provided = loader.read(dependency).provides
    if not provided:
        return
    required = loader.read(needed_by).requires.get(name, ())
    missing = [version for version in required if version not in provided]
    if missing:
        reason = f"{dependency} lacks {', '.join(missing)}"
        yield UnmetDependency(name, needed_by, reason)


# --- ELF headers ---------------------------------------------------------------------


class _ElfHeaders(NamedTuple):
    """The parts of a library's ELF headers that determine whether the library can be loaded."""

    #: The architecture, such as `"64-bit x64"`. A library can load only libraries that have the same
    #: architecture.
    architecture: str
    #: The name by which other libraries need this library, or an empty string if the library does not have
    #: one.
    soname: str
    #: The names of the libraries that this library needs.
    needed: tuple[str, ...]
    #: The folders in which the loader searches for the needed libraries.
    #: `rpath` applies only if `runpath` is empty.
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    #: The required symbol versions by library, such as `{"libc.so.6": ("GLIBC_2.34",)}`.
    requires: Mapping[str, tuple[str, ...]]
    #: The symbol versions that the library defines.
    provides: frozenset[str]

    def rpath_of_dependencies(
        self, inherited_rpath: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Return the rpath for the search of this library's direct and indirect dependencies.

        An rpath also applies to indirect dependencies, but a runpath only to direct ones.
        """
        if self.runpath:  # The loader then ignores the library's RPATH.
            return inherited_rpath
        return (*self.rpath, *inherited_rpath)


def _read_elf_headers(path: str) -> _ElfHeaders:
    """Return the ELF headers of a library.

    Raises `OSError` or any error of pyelftools if the library cannot be read.
    """
    from elftools.elf.elffile import ELFFile

    with open(path, "rb") as file:  # noqa: PTH123
        elf = ELFFile(file)
        sections = dict(_sections(elf))
        tags = _dynamic_tags(sections.get(_DYNAMIC))
        return _ElfHeaders(
            architecture=f"{elf.elfclass}-bit {elf.get_machine_arch()}",
            soname=tags["soname"][0] if tags["soname"] else "",
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
    """Yield the sections with dynamic tags and symbol versions, each as a pair of its type and itself.

    Sections of other types, such as hash tables, are skipped, because they are slow to read.
    """
    from elftools.common.exceptions import ELFError, ELFParseError

    types = (_DYNAMIC, _VERSIONS_NEEDED, _VERSIONS_DEFINED)
    for index in range(elf.num_sections()):
        try:
            section = elf.get_section(index, types)
        except ELFParseError:  # The file is damaged.
            raise
        except ELFError:  # The section has a different type.
            continue
        yield section["sh_type"], section


def _dynamic_tags(section: Any) -> dict[str, list[str]]:
    """Return the values of the dynamic tags that contain names of libraries and folders, by tag."""
    values_by_tag: dict[str, list[str]] = {
        "soname": [],
        "needed": [],
        "rpath": [],
        "runpath": [],
    }
    if section is None:
        return values_by_tag
    for tag in section.iter_tags():
        name = str(tag.entry.d_tag).removeprefix("DT_").lower()
        if name in values_by_tag:
            # pyelftools stores the value of the tag DT_NEEDED in the attribute `needed`.
            values_by_tag[name].append(getattr(tag, name))
    return values_by_tag


def _required_versions(section: Any) -> dict[str, tuple[str, ...]]:
    """Return the required symbol versions by library, without weak versions."""
    required: dict[str, tuple[str, ...]] = {}
    if section is None:
        return required
    for library, versions in section.iter_versions():
        names = []
        for version in versions:
            is_weak = version["vna_flags"] & _WEAK_VERSION
            if not is_weak:  # A library may lack a weak version.
                names.append(version.name)
        required[library.name] = tuple(names)
    return required


def _defined_versions(section: Any) -> frozenset[str]:
    """Return the names of the symbol versions that a library defines."""
    if section is None:
        return frozenset()
    defined = set()
    for _, names in section.iter_versions():
        # The first name is the name of the version; the names of its parents follow.
        defined.add(next(names).name)
    return frozenset(defined)


def _expand_origin(folder_lists: Iterable[str], library: str) -> tuple[str, ...]:
    """Return the folders in lists such as `"$ORIGIN/lib:/opt/lib"`.

    `$ORIGIN` is replaced by the folder of `library`, the path of the library that contains the lists.
    """
    origin = os.path.dirname(os.path.realpath(library))  # noqa: PTH120
    folders = []
    for folder_list in folder_lists:
        expanded = folder_list.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        folders += [folder for folder in expanded.split(":") if folder]
    return tuple(folders)


# --- The loader ----------------------------------------------------------------------


class _SearchResult(NamedTuple):
    """The result of a search for a library.

    Both fields are empty for a library that is not found, but that the program loads by other means.
    """

    #: The path of the library, or an empty string if the library is not found.
    path: str = ""
    #: The reason why the library is not found or cannot be loaded. Otherwise, an empty string.
    problem: str = ""


class _Loader:
    """A model of the dynamic loader, which finds libraries by name and caches the results."""

    def __init__(self, ld_library_path: str, loaded_names: Set[str]) -> None:
        #: Names of libraries that the program loads by other means, and that do not count as missing.
        self._loaded_names = loaded_names
        self._ld_library_path: list[str] = []
        if ld_library_path:
            entries = ld_library_path.replace(";", ":").split(":")
            # An empty entry means the working folder.
            self._ld_library_path = [entry or "." for entry in entries]
        self._cache = _read_loader_cache()
        self._headers_by_path: dict[str, _ElfHeaders] = {}
        self._paths_by_name: dict[str, str] = {}

    def read(self, path: str) -> _ElfHeaders:
        """Return the ELF headers of a library.

        Raises `OSError` or any error of pyelftools if the library cannot be read.
        """
        if path not in self._headers_by_path:
            self._headers_by_path[path] = _read_elf_headers(path)
        return self._headers_by_path[path]

    def register(self, name: str, path: str) -> None:
        """Remember that the library `name` is loaded from `path`, unless its path is already known."""
        self._paths_by_name.setdefault(name, path)

    def python_rpath(self) -> tuple[str, ...]:
        """Return the rpath of the Python executable, which applies to all libraries that it loads.

        conda's Python has an rpath.
        """
        try:
            return self.read(sys.executable).rpath
        except Exception:  # The executable may not be an ELF file.
            return ()

    def find(
        self, name: str, needed_by: _ElfHeaders, rpath: Sequence[str]
    ) -> _SearchResult:
        """Return the path of the library `name`, or the reason why the library is not found.

        Both are empty strings if the program loads the library by other means.

        Args:
            name: The name of the library.
            needed_by: The headers of the library that needs the library `name`.
            rpath: The rpaths of `needed_by` and of the libraries that need `needed_by`. They apply only if
                `needed_by` has no runpath.
        """
        if name in self._paths_by_name:  # A library is loaded once.
            return _SearchResult(self._paths_by_name[name])
        result = self._search(name, needed_by, rpath)
        if result.path:
            self.register(name, result.path)
        elif name in self._loaded_names:
            # The program loads the library by other means, so there is no problem.
            return _SearchResult()
        return result

    def _search(
        self, name: str, needed_by: _ElfHeaders, rpath: Sequence[str]
    ) -> _SearchResult:
        """Return the first file with the right architecture, or the reason why there is none."""
        problem = NOT_FOUND
        for path in self._candidate_paths(name, needed_by, rpath):
            if not os.path.isfile(path):  # noqa: PTH113
                continue
            try:
                architecture = self.read(path).architecture
            except Exception as error:  # The loader would fail on this file too.
                message = _error_clause(error)
                return _SearchResult(problem=f"{path} cannot be loaded: {message}")
            if architecture == needed_by.architecture:
                return _SearchResult(path)
            if problem == NOT_FOUND:
                problem = f"{path} is for {architecture}, not {needed_by.architecture}"
        return _SearchResult(problem=problem)

    def _candidate_paths(
        self, name: str, needed_by: _ElfHeaders, rpath: Sequence[str]
    ) -> list[str]:
        """Return the paths at which the loader looks for the library `name`, in the loader's order."""
        if "/" in name:
            return [name]
        # The order is described in ld.so(8). RPATH counts only without RUNPATH.
        folders = [*self._ld_library_path, *needed_by.runpath]
        if not needed_by.runpath:
            folders = [*rpath, *folders]
        paths = [f"{folder}/{name}" for folder in folders]
        paths += self._cache.get(name, ())
        paths += [f"{folder}/{name}" for folder in _DEFAULT_FOLDERS]
        return paths


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


def other_copies_of_libraries() -> dict[str, set[str]]:
    """Return the folders that contain a copy of a library other than the copy that the loader takes.

    The values are the names of these libraries. The loader takes the first copy in its cache, which may be
    the copy of an old toolkit.
    """
    names_by_folder: dict[str, set[str]] = {}
    for name, paths in _read_loader_cache().items():
        first = Path(paths[0]).resolve()
        for path in paths[1:]:
            if Path(path).resolve() != first:
                folder = str(Path(path).parent)
                names_by_folder.setdefault(folder, set()).add(name)
    return names_by_folder


def _read_loader_cache() -> dict[str, list[str]]:
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
    paths_by_name: dict[str, list[str]] = {}
    for line in completed.stdout.splitlines():
        # A line is such as "libc.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libc.so.6".
        name_and_flags, arrow, path = line.strip().partition(" => ")
        if arrow:
            name = name_and_flags.partition(" ")[0]
            paths_by_name.setdefault(name, []).append(path)
    return paths_by_name


def _error_clause(error: Exception) -> str:
    """Return the error's message without its full stop."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).rstrip(".")
