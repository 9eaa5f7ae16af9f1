"""Reads of a shared library what the loader reads: the libraries it needs, the symbols it lacks and has.

Only 64-bit little-endian ELF, which every machine that torch_npu has wheels for uses.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

__all__ = ["Library", "read"]

_MAGIC = b"\x7fELF\x02\x01"
_DYNAMIC, _DYNAMIC_SYMBOLS = 6, 11  # section types
_NEEDED, _SONAME = 1, 14  # tags of the dynamic section
_WEAK = 2


@dataclass
class Library:
    """One shared library, as the loader sees it."""

    path: Path
    soname: str = ""
    needed: list[str] = field(default_factory=list)
    #: Symbols that another library has to bring; weak ones, which may be missing, are left out.
    undefined: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def read(path: Path) -> Library:
    """Read one library. Raises `ValueError` for a file of another kind."""
    data = path.read_bytes()
    if data[:6] != _MAGIC:
        raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + i * size)) for i in range(count)]
    library = Library(path)
    for section in sections:
        if section.kind in (_DYNAMIC, _DYNAMIC_SYMBOLS):
            body = data[section.offset : section.offset + section.size]
            names = sections[section.link].offset
            fill = _add_dynamic if section.kind == _DYNAMIC else _add_symbols
            fill(
                library,
                body,
                lambda at, names=names: data[names + at : data.index(b"\0", names + at)].decode(),
            )
    return library


def _add_dynamic(library: Library, body: bytes, text) -> None:
    for tag, value in struct.iter_unpack("<qQ", body):
        if tag == _NEEDED:
            library.needed.append(text(value))
        elif tag == _SONAME:
            library.soname = text(value)


def _add_symbols(library: Library, body: bytes, text) -> None:
    for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", body):
        if not name:
            continue
        if section:
            library.defined.add(text(name))
        elif info >> 4 != _WEAK:
            library.undefined.add(text(name))
