"""The files of a machine that somebody sent: a folder, an archive or a document.

The sender may be careless or hostile. So everything is read as a stream against bounds on bytes, members and
depth, and one fault refuses the whole file: a part of a machine would give a wrong diagnosis.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from accel_core import hardware
from accel_core.errors import AccelError
from accel_core.text import short_repr

__all__ = ["FILE", "WORDS", "MachineFileError", "unpacked"]

#: The name of a saved machine inside a bundle of `accel doctor`.
FILE = "machine.json"
#: What such a document says beside its files, and what holds where it is silent.
WORDS = {
    "system": "linux",
    "architecture": "x86_64",
    "python": "",
    "nvidia_smi": "",
    "glibc": "",
}

# Bounds, in bytes: a file in an archive (a longer one counts by its name alone), a document, the packed and
# the unpacked archive. A tree of `/sys` and `/dev` is small.
_MOST, _DOCUMENT, _LARGEST, _UNPACKED = 2**16, 2**22, 50 * 2**20, 2**28
#: The most files of an archive, and the most folders above one.
_MEMBERS, _DEPTH = 20_000, 32
#: A zip is asked for the list of all its members at once: 46 bytes and a name for each.
_AT_ONCE = 128 * _MEMBERS

_EXPECTED = (
    "is none of what is expected: a folder or an archive (zip, tar) with /sys and /dev of a machine, a "
    "bundle of accel doctor --bundle, or a machine.json out of one"
)
_TOO_MUCH = "is too large: save /sys and /dev of the machine alone"
_UNPACKERS: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}


class MachineFileError(AccelError, ValueError):
    """The error for a file that does not describe a machine."""


def unpacked(path: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """Return the folder with the machine's files, and the document's `WORDS`.

    Packed files are written below `folder`; a tree stays where it is. Raises `MachineFileError` with a
    sentence on any fault.
    """
    try:
        return _unpacked(path, folder)
    except MachineFileError as error:
        raise MachineFileError(f"{path} {error}") from None
    except OSError as error:
        raise MachineFileError(
            f"{path} cannot be read: {error.strerror or error}"
        ) from None
    except Exception as error:  # the readers of archives raise a dozen kinds
        raise MachineFileError(
            f"{path} is damaged: {str(error) or type(error).__name__}"
        ) from None


def _unpacked(path: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    if path.is_dir():
        document = path / FILE
        return (
            _unpacked(document, folder)
            if document.is_file()
            else (path, _of_tree(path))
        )
    if not stat.S_ISREG(path.stat().st_mode):
        raise MachineFileError("is neither a file nor a folder")
    with path.open("rb") as file:
        start = file.read(_MOST)
        if file.seek(0, io.SEEK_END) > _LARGEST:
            raise MachineFileError(_TOO_MUCH)
        file.seek(0)
        unpacker = next(
            (_UNPACKERS[magic] for magic in _UNPACKERS if start.startswith(magic)), None
        )
        if start.startswith(b"PK"):
            with zipfile.ZipFile(_Bounded(file)) as archive:
                if FILE in archive.namelist():
                    with archive.open(FILE) as inside:
                        return folder, _of_document(inside, folder)
                _write(_of_zip(archive), folder)
        elif unpacker or start[257:262] == b"ustar":
            with unpacker(file) if unpacker else file as stream:
                _write(_of_tar(_Bounded(stream)), folder)
        else:
            return folder, _of_document(file, folder)
    return folder, _of_tree(folder)


class _Bounded(io.BufferedIOBase):
    """A stream that raises where it gives too much, or is asked for too much at once."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left = stream, _UNPACKED

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _AT_ONCE:
            raise MachineFileError(_TOO_MUCH)
        data = self._stream.read(-1 if size is None else size)
        self._left -= len(data)
        if self._left < 0:
            raise MachineFileError(_TOO_MUCH)
        return data


def _of_zip(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    for info in archive.infolist():
        if not info.is_dir() and info.file_size <= _MOST:
            yield info.filename, archive.read(info)


class _Header(tarfile.TarInfo):
    """A member of a tar; a damaged one, after which `tarfile` would stop in silence, is an error."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf and not any(buf):  # zeros end a tar
                raise
            raise MachineFileError(f"is damaged or cut: {error}") from None
        # The names of a long name and the fields of an extended header are read at once.
        if not header.isreg() and header.size > _MOST:
            raise MachineFileError(_TOO_MUCH)
        return header


def _of_tar(stream: _Bounded) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
        for member in (
            tar
        ):  # device nodes and links become empty files: only their names are read
            if not member.isdir():
                file = (
                    tar.extractfile(member)
                    if member.isreg() and member.size <= _MOST
                    else None
                )
                yield member.name, file.read() if file else b""
    while stream.read(_MOST):  # its checksum stands at the end
        pass


def _of_document(file: IO[bytes], folder: Path) -> dict[str, str]:
    """Write the files of a `machine.json` below `folder`; give its other words."""
    data = file.read(_DOCUMENT + 1)
    if len(data) > _DOCUMENT:
        raise MachineFileError(_TOO_MUCH)
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("files"), dict):
        raise MachineFileError(_EXPECTED)
    words = {name: document.get(name, default) for name, default in WORDS.items()}
    for name, text in (*words.items(), *document["files"].items()):
        if not isinstance(text, str):
            raise MachineFileError(
                f"is damaged: {short_repr(name)} has {short_repr(text)}, expected a text"
            )
        if name in ("system", "architecture", "python") and not re.fullmatch(
            r"[\w.-]{0,40}", text
        ):
            raise MachineFileError(
                f"is damaged: its {name} is {short_repr(text)}, expected one word"
            )
    _write(((name, text.encode()) for name, text in document["files"].items()), folder)
    return words


def _write(files: Iterable[tuple[str, bytes]], folder: Path) -> None:
    """Write the files below `folder`, after all of them were read."""
    left, read = _LARGEST, list[tuple[Path, bytes]]()
    for name, data in files:
        parts = [
            part for part in PurePosixPath(name).parts if part not in ("/", "//", ".")
        ]
        left -= len(data)
        if left < 0 or len(read) == _MEMBERS or len(parts) > _DEPTH:
            raise MachineFileError(_TOO_MUCH)
        if ".." in parts or "\0" in name:
            raise MachineFileError(
                f"is refused: it names a file outside the machine, {short_repr(name)}"
            )
        read += [(folder.joinpath(*parts), data)] if parts else []
    for target, data in read:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _of_tree(folder: Path) -> dict[str, str]:
    """Check that a tree is a machine's; with the architecture that its kernel names."""
    if not any((folder / name).is_dir() for name in ("sys", "dev", "proc", "usr")):
        raise MachineFileError(_EXPECTED)
    version = hardware.read_text("/proc/version", str(folder))
    return WORDS | {
        "architecture": "aarch64"
        if re.search("aarch64|arm64|tegra", version)
        else "x86_64"
    }
