"""ELF files: what a shared library needs and brings, read from its headers without loading it.

Nothing that a file says is believed: each offset, count and string is held against the file and a limit, so
that one that is truncated, huge, or points to itself is an error and costs neither time nor memory.
The format: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html, and of symbol versions
https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

__all__ = ["Elf", "architecture", "read_elf"]


class Elf(NamedTuple):
    """What the headers of a shared library say that matters to whoever loads it."""

    #: `"64-bit x86-64"`: of two files that differ in it one cannot load the other.
    architecture: str
    #: The name under which others need it; empty where it has none.
    soname: str
    #: The names of the libraries that it needs, in order.
    needed: tuple[str, ...]
    #: Folders to look in, as they are written: `"$ORIGIN/lib"`. `rpath` counts only without `runpath`.
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    #: The versions that it needs of each library, by the library's name: `{"libc.so.6": ("GLIBC_2.34",)}`.
    requires: dict[str, tuple[str, ...]]
    #: The versions that it brings.
    provides: frozenset[str]


#: Without waiting: opening a FIFO waits for somebody to write.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
#: The largest of what one file may make us read: a table of a real library has some hundreds of entries.
_MOST_ENTRIES = 1 << 12
_MOST_SEGMENTS = 1 << 10
_LONGEST_STRING = 1 << 12

#: gABI, "Program Header" and "Dynamic Section".
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29
#: LSB, "Symbol Versioning".
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_WEAK = 2

#: gABI, "Machine": `e_machine` of what Linux runs on that somebody has an accelerator in.
_MACHINES = {
    3: "x86",
    40: "Arm",
    62: "x86-64",
    183: "AArch64",
    21: "PowerPC64",
    243: "RISC-V",
    258: "LoongArch",
}


def read_elf(path: str) -> Elf:
    """What the file's headers say; of one that needs nothing, as a static one, all is empty.

    Raises `OSError` where it cannot be read, or is no regular file, and `ValueError` where it is no ELF file
    or breaks the format; the message says how.
    """
    with _File(path) as file:
        segments = _segments(file)
        dynamic = next((s for s in segments if s.kind == _PT_DYNAMIC), None)
        entries = list(_dynamic(file, dynamic)) if dynamic else []
        return _read(file, _Tables(file, segments, entries), entries)


def architecture(path: str) -> str:
    """`Elf.architecture` of the file, from its first bytes; raises as `read_elf` does."""
    with _File(path) as file:
        return file.architecture


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


class _File:
    """An open ELF file: bytes at places that are in it, and numbers in its own form."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, _FLAGS)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{path} is no regular file")
            self._size = status.st_size
            identity = self.read(0, 20, "its first header")
            if identity[:4] != b"\x7fELF":
                raise ValueError("it is no ELF file")
            if identity[4] not in (1, 2) or identity[5] not in (1, 2):
                raise ValueError("its first header names no known form of ELF")
            self.is_64 = identity[4] == 2
            self._order = "<" if identity[5] == 1 else ">"
            (machine,) = struct.unpack_from(f"{self._order}H", identity, 18)
            name = _MACHINES.get(machine, f"machine {machine}")
            big = " big-endian" if self._order == ">" else ""
            self.architecture = f"{64 if self.is_64 else 32}-bit{big} {name}"
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> _File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def read(self, offset: int, size: int, what: str) -> bytes:
        """`size` bytes at `offset`; raises `ValueError`, which names `what`, where the file is shorter."""
        if offset < 0 or size < 0 or offset + size > self._size:
            raise ValueError(f"it ends within {what}")
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        data = b""
        while len(data) < size:
            more = os.read(self._descriptor, size - len(data))
            if not more:  # it has been cut short since
                raise ValueError(f"it ends within {what}")
            data += more
        return data

    def upto(self, offset: int, size: int, what: str) -> bytes:
        """At most `size` bytes at `offset`, fewer at the end of the file."""
        return self.read(offset, min(size, max(0, self._size - offset)), what)

    def numbers(self, form: str, offset: int, what: str) -> tuple[int, ...]:
        """Numbers at `offset`, in `struct`'s words, in the file's own order of bytes."""
        form = self._order + form
        return struct.unpack(form, self.read(offset, struct.calcsize(form), what))

    def table(self, form: str, offset: int, count: int, what: str) -> Iterator[tuple[int, ...]]:
        """`count` rows of numbers at `offset`."""
        form = self._order + form
        yield from struct.iter_unpack(form, self.read(offset, struct.calcsize(form) * count, what))


def _segments(file: _File) -> list[_Segment]:
    what = "its program headers"
    if file.is_64:
        (start,) = file.numbers("Q", 32, what)
        width, count = file.numbers("HH", 54, what)
    else:
        (start,) = file.numbers("I", 28, what)
        width, count = file.numbers("HH", 42, what)
    form = "IIQQQQQQ" if file.is_64 else "IIIIIIII"
    if count and width != struct.calcsize(f"<{form}"):
        raise ValueError(f"its program headers are {width} bytes each")
    if count > _MOST_SEGMENTS:
        raise ValueError(f"it has {count} program headers, more than {_MOST_SEGMENTS}")
    rows = file.table(form, start, count, what)
    if file.is_64:
        return [_Segment(row[0], row[2], row[3], row[5]) for row in rows]
    return [_Segment(row[0], row[1], row[2], row[4]) for row in rows]


def _dynamic(file: _File, segment: _Segment) -> Iterator[tuple[int, int]]:
    """Tags and values, up to the one that ends them."""
    form, width = ("QQ", 16) if file.is_64 else ("II", 8)
    count = segment.size // width
    if count > _MOST_ENTRIES:
        raise ValueError(f"its dynamic section has {count} entries, more than {_MOST_ENTRIES}")
    for tag, value in file.table(form, segment.offset, count, "its dynamic section"):
        if tag == _DT_NULL:
            return
        yield tag, value


class _Tables:
    """What the dynamic section points to: addresses in memory, found in the file."""

    def __init__(self, file: _File, segments: list[_Segment], entries: list[tuple[int, int]]) -> None:
        self._file = file
        self._loaded = [segment for segment in segments if segment.kind == _PT_LOAD]
        self._values = dict(reversed(entries))  # of several the first counts
        self._strings = self.place(_DT_STRTAB)
        self._length = self._values.get(_DT_STRSZ, 0)

    def __getitem__(self, tag: int) -> int:
        return self._values.get(tag, 0)

    def place(self, tag: int) -> int | None:
        """Where in the file that table begins; `None` where there is none."""
        address = self._values.get(tag)
        if address is None:
            return None
        for segment in self._loaded:
            if 0 <= address - segment.address < segment.size:
                return segment.offset + address - segment.address
        raise ValueError("its dynamic section points out of the file")

    def string(self, at: int) -> str:
        """The string there; bytes that are not UTF-8 as Python has them in names of files."""
        if self._strings is None or not 0 <= at < self._length:
            raise ValueError("a name lies outside its table of strings")
        most = min(self._length - at, _LONGEST_STRING)
        text, end, _ = self._file.upto(self._strings + at, most, "its table of strings").partition(b"\0")
        if not end:
            raise ValueError("a name in its table of strings does not end")
        return os.fsdecode(text)


def _read(file: _File, tables: _Tables, entries: list[tuple[int, int]]) -> Elf:
    def all_of(tag: int) -> list[str]:
        return [tables.string(value) for found, value in entries if found == tag]

    def folders(tag: int) -> tuple[str, ...]:
        return tuple(folder for value in all_of(tag) for folder in value.split(":") if folder)

    return Elf(
        file.architecture,
        next(iter(all_of(_DT_SONAME)), ""),
        tuple(all_of(_DT_NEEDED)),
        folders(_DT_RPATH),
        folders(_DT_RUNPATH),
        _required(file, tables),
        frozenset(_provided(file, tables)),
    )


def _required(file: _File, tables: _Tables) -> dict[str, tuple[str, ...]]:
    """The versions that are needed of each library; one that is needed weakly is only wished for."""
    required: dict[str, tuple[str, ...]] = {}
    left = _MOST_ENTRIES  # of all chains together: one that leads back ends too
    for offset, need in _chain(file, tables, _DT_VERNEED, _DT_VERNEEDNUM, "HHIII", 4):
        _, count, name, first, _ = need
        versions = []
        at = offset + first
        for _ in range(count):
            left -= 1
            if left < 0:
                raise ValueError(f"it needs more than {_MOST_ENTRIES} versions")
            _, flags, _, version, following = file.numbers("IHHII", at, "the versions that it needs")
            if not flags & _WEAK:
                versions.append(tables.string(version))
            if not following:
                break
            at += following
        library = tables.string(name)
        required[library] = (*required.get(library, ()), *versions)
    return required


def _provided(file: _File, tables: _Tables) -> Iterator[str]:
    """The versions that it brings; those that they stand for are not of interest."""
    for offset, definition in _chain(file, tables, _DT_VERDEF, _DT_VERDEFNUM, "HHHHIII", 6):
        count, first = definition[3], definition[5]
        if count:
            name, _ = file.numbers("II", offset + first, "the versions that it brings")
            yield tables.string(name)


def _chain(
    file: _File, tables: _Tables, table: int, length: int, form: str, link: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The records of a table of versions with their places; field `link` says how far the next one is."""
    offset, count = tables.place(table), tables[length]
    if offset is None:
        return
    if count > _MOST_ENTRIES:
        raise ValueError(f"a table of versions has {count} entries, more than {_MOST_ENTRIES}")
    for _ in range(count):
        record = file.numbers(form, offset, "a table of versions")
        yield offset, record
        if not record[link]:
            return
        offset += record[link]
