"""Find libraries that a vendor's extension modules need but would not get, from ELF headers, loading nothing.

pyelftools reads the headers; it comes with `accel-tools[doctor]`. Folders are searched in the order of
https://man7.org/linux/man-pages/man8/ld.so.8.html. Linux only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import hardware
from accel_core.hardware import vendors

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

__all__ = ["NOT_FOUND", "Unmet", "unmet_needs", "why_unknown"]

#: `Unmet.why` of most.
NOT_FOUND = "it is not found"
_WEAK = 2  # VER_FLG_WEAK: a version that is only wished for


class Unmet(NamedTuple):
    """A library that another library needs but would not get."""

    #: The name that is needed: `"libhccl.so"`; or the path of a library that cannot be read itself.
    name: str
    #: The path of the one that needs it.
    needed_by: str
    #: Why not, as a clause: `"it is not found"`, `"/usr/lib/libstdc++.so.6 lacks GLIBCXX_3.4.32"`.
    why: str


def why_unknown() -> str:
    """Return why libraries cannot be examined, with the next step; empty if pyelftools is installed."""
    if find_spec("elftools"):
        return ""
    return f"not known without pyelftools: {vendors.install_command('accel-tools', extra='doctor')}"


def unmet_needs(
    paths: Iterable[str], environ: Mapping[str, str], loaded: Sequence[str] = ()
) -> Iterator[Unmet]:
    """Yield the missing dependencies of the libraries `paths`, and of the libraries that these need in turn.

    Each dependency is yielded once for each library that needs it, nearest first; none without pyelftools
    (`why_unknown`). `environ`: the variables, for `LD_LIBRARY_PATH`. `loaded`: folders of libraries that are
    loaded earlier or by their paths; a name in them counts as available. A library that cannot be read is
    reported as a missing dependency.
    """
    if why_unknown():
        return
    there = {name for folder in loaded for name in hardware.names_in(folder)}
    search = _Search(environ.get("LD_LIBRARY_PATH", ""))
    seen: set[str] = set()
    waiting = deque((path, search.of_python()) for path in paths)
    while waiting:
        path, inherited = waiting.popleft()
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        try:
            elf = search.read(path)
        except Exception as error:  # whatever pyelftools meets in a damaged file
            yield Unmet(path, "", f"it cannot be read: {_clause(error)}")
            continue
        search.known.setdefault(elf.soname, path)
        # An rpath counts for all that is loaded in turn, a runpath for the library's own needs alone.
        inherited = inherited if elf.runpath else (*elf.rpath, *inherited)
        for name in elf.needed:
            found, why = search.find(name, elf, () if elf.runpath else inherited)
            if found:
                search.known.setdefault(name, found)
                provided = search.read(found).provides
                missing = (
                    [v for v in elf.requires.get(name, ()) if v not in provided]
                    if provided
                    else []
                )
                if missing:
                    yield Unmet(name, path, f"{found} lacks {', '.join(missing)}")
                waiting.append((found, inherited))
            elif name not in there:
                yield Unmet(name, path, why)


class _Elf(NamedTuple):
    """The parts of a library's headers that decide whether it can be loaded."""

    #: `"64-bit x64"`: of two files that differ in it one cannot load the other.
    architecture: str
    #: The name under which others need it; empty where it has none.
    soname: str
    needed: tuple[str, ...]
    #: Folders to look in. `rpath` counts only without `runpath`.
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    #: The versions that it needs of each library: `{"libc.so.6": ("GLIBC_2.34",)}`; and those that it brings.
    requires: Mapping[str, tuple[str, ...]]
    provides: frozenset[str]


def _read(path: str) -> _Elf:
    from elftools.elf.elffile import ELFFile

    with open(path, "rb") as file:  # noqa: PTH123
        elf = ELFFile(file)
        sections = dict(_sections(elf))
        dynamic, needs, brings = map(sections.get, _SECTIONS)
        tags = list(dynamic.iter_tags()) if dynamic else []
        names = {
            kind: tuple(
                getattr(tag, kind)
                for tag in tags
                if tag.entry.d_tag == f"DT_{kind.upper()}"
            )
            for kind in ("soname", "needed", "rpath", "runpath")
        }
        requires = {
            library.name: tuple(v.name for v in versions if not v["vna_flags"] & _WEAK)
            for library, versions in (needs.iter_versions() if needs else ())
        }
        return _Elf(
            f"{elf.elfclass}-bit {elf.get_machine_arch()}",
            "".join(names["soname"][:1]),
            names["needed"],
            _expanded(names["rpath"], path),
            _expanded(names["runpath"], path),
            requires,
            frozenset(
                next(versions).name
                for _, versions in (brings.iter_versions() if brings else ())
            ),
        )


_SECTIONS = ("SHT_DYNAMIC", "SHT_GNU_verneed", "SHT_GNU_verdef")


def _sections(elf: ELFFile) -> Iterator[tuple[str, Any]]:
    """Yield the sections of those types by type; others, as tables of hashes, would take long to read."""
    from elftools.common.exceptions import ELFError, ELFParseError

    for number in range(elf.num_sections()):
        try:
            section = elf.get_section(number, _SECTIONS)
        except ELFParseError:
            raise
        except ELFError:  # of another type
            continue
        yield section["sh_type"], section


def _expanded(lists: Iterable[str], path: str) -> tuple[str, ...]:
    """Return the folders of `lists` ("a:b"), with the folder of `path` in the place of `$ORIGIN`."""
    origin = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
    folders = (folder for text in lists for folder in text.split(":") if folder)
    return tuple(
        f.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for f in folders
    )


class _Search:
    """The loader's search for names, and what it has found so far."""

    def __init__(self, variable: str) -> None:
        # An empty entry means the current folder.
        self._variable = (
            [entry or "." for entry in variable.replace(";", ":").split(":")]
            if variable
            else []
        )
        self._cache = _ld_cache()
        self._read: dict[str, _Elf] = {}
        #: Paths by the names under which the loader knows them from then on.
        self.known: dict[str, str] = {}

    def read(self, path: str) -> _Elf:
        if path not in self._read:
            self._read[path] = _read(path)
        return self._read[path]

    def of_python(self) -> tuple[str, ...]:
        """Return the rpath of Python's own program, which counts for all that it loads; conda's has one."""
        try:
            return self.read(sys.executable).rpath
        except Exception:  # no program of this system's own
            return ()

    def find(self, name: str, by: _Elf, inherited: Sequence[str]) -> tuple[str, str]:
        """Return the path of the library that `by` gets for `name`, or why it gets none."""
        if name in self.known:
            return self.known[name], ""
        unsuitable = ""
        folders = (*inherited, *self._variable, *by.runpath)
        places = (f"{folder}/{name}" for folder in folders)
        defaults = (f"{folder}/{name}" for folder in _DEFAULTS)
        for path in (
            [name] if "/" in name else (*places, *self._cache.get(name, ()), *defaults)
        ):
            if not os.path.isfile(path):  # noqa: PTH113
                continue
            try:
                kind = self.read(path).architecture
            except Exception as error:  # the loader takes it all the same, and fails
                return "", f"{path} cannot be loaded: {_clause(error)}"
            if kind == by.architecture:
                return path, ""
            unsuitable = unsuitable or f"{path} is for {kind}, not {by.architecture}"
        return "", unsuitable or NOT_FOUND


_TRIPLET = sysconfig.get_config_var("MULTIARCH") or "."
#: Folders that every loader looks in: glibc's, Debian's for one architecture, and musl's.
_DEFAULTS = (
    f"/lib/{_TRIPLET}", "/lib64", "/lib", f"/usr/lib/{_TRIPLET}", "/usr/lib64", "/usr/lib", "/usr/local/lib",
)  # fmt: skip


def _ld_cache() -> dict[str, list[str]]:
    """Return the paths of the loader's cache by name, in its order; none where there is no `ldconfig`."""
    program = shutil.which(
        "ldconfig", path=f"{os.environ.get('PATH', os.defpath)}:/sbin:/usr/sbin"
    )
    paths: dict[str, list[str]] = {}
    if program:
        done = subprocess.run(
            [program, "-p"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        for line in done.stdout.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if arrow:
                paths.setdefault(name.partition(" ")[0], []).append(path)
    return paths


def _clause(error: Exception) -> str:
    return (
        getattr(error, "strerror", None) or str(error) or type(error).__name__
    ).rstrip(".")
