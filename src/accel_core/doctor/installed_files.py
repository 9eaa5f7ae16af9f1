"""Whether a distribution's files are those that were installed: by the hashes of its `RECORD`.

https://packaging.python.org/en/latest/specifications/recording-installed-packages/#the-record-file
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Compared", "compare", "owned_by"]

#: Bytes of a `RECORD` that are read; torch's has 2 MB.
_LARGEST_RECORD = 32 << 20
_BLOCK = 1 << 20
#: How the file begins that shows Python a checkout: of hatchling, setuptools.
_EDITABLE = ("_editable_impl_", "__editable__")
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


class Compared(NamedTuple):
    """What comparing the files of one distribution gave."""

    #: Files whose hash was compared, and those that were left out as too large or for want of time.
    compared: int
    left_out: int
    #: Files that are not as they were installed, each with how: `("torch_npu/npu/utils.py", "changed")`.
    altered: tuple[tuple[str, str], ...]
    #: Why nothing could be compared; empty where it could.
    problem: str = ""


def compare(folder: str, largest: int | None, seconds: float) -> Compared:
    """Compare the files of the distribution whose metadata are in `folder` (`…/torch_npu-2.13.0.dist-info`).

    `largest`: bytes above which a file is only asked for its size, `None` for no limit; `seconds`: when to
    end. A file that is not there, or has another size or hash, is altered. One without a hash in `RECORD`, as
    byte code, is nobody's to judge, and scripts outside the folder of modules are left alone.
    """
    if _is_editable(folder):
        return Compared(0, 0, (), "it is installed as editable, so that its code is not recorded")
    end = time.monotonic() + seconds
    compared = left_out = 0
    altered: list[tuple[str, str]] = []
    site = Path(folder).parent
    try:
        for name, hash_and_digest, size in _rows(Path(folder, "RECORD")):
            if time.monotonic() > end:
                left_out += 1
                continue
            how = _difference(site / name, hash_and_digest, size, largest, end)
            if how is None:
                left_out += 1
            else:
                compared += 1
                altered += [(name, how)] if how else []
    except FileNotFoundError:
        return Compared(0, 0, (), "it has no RECORD")
    except (OSError, ValueError, csv.Error) as error:
        words = getattr(error, "strerror", None) or str(error)
        return Compared(compared, left_out, tuple(altered), f"its RECORD cannot be read: {words}")
    return Compared(compared, left_out, tuple(altered))


def _is_editable(folder: str) -> bool:
    """Whether the modules lie elsewhere, in somebody's checkout.

    https://packaging.python.org/en/latest/specifications/direct-url/
    """
    try:
        told = json.loads(_text(Path(folder, "direct_url.json")))
        if told["dir_info"]["editable"]:
            return True
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass  # not from a folder
    return owned_by(folder, _EDITABLE)


def owned_by(folder: str, path: str | tuple[str, ...]) -> bool:
    """Whether the `RECORD` in `folder` lists a file that begins so: `"habana_frameworks/torch/"`."""
    try:
        return any(name.startswith(path) for name, _, _ in _rows(Path(folder, "RECORD"), all_rows=True))
    except (OSError, ValueError, csv.Error):
        return False


def _rows(record: Path, *, all_rows: bool = False) -> Iterator[tuple[str, str, str]]:
    """Name, hash and size of each file with a hash that says something of its code; with `all_rows` all."""
    for row in csv.reader(_text(record).splitlines()):
        if len(row) != 3 or row[0].startswith(("/", "..")):
            continue
        # METADATA: whoever loosens a requirement rewrites it, as the wheel of IPEX 2.8.0 comes rewritten.
        if all_rows or (row[1] and not row[0].endswith(".dist-info/METADATA")):
            yield row[0], row[1], row[2]


def _text(path: Path) -> str:
    """The text of a file of metadata; raises `OSError`, or `ValueError` for one that is not to be read."""
    descriptor = os.open(path, _FLAGS)  # without waiting, should it be a FIFO
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no regular file")
        if status.st_size > _LARGEST_RECORD:
            raise ValueError(f"it has {status.st_size} bytes, more than {_LARGEST_RECORD}")
        return file.read(_LARGEST_RECORD).decode("utf-8")


def _difference(path: Path, hash_and_digest: str, size: str, largest: int | None, end: float) -> str | None:
    """How the file differs from `RECORD`, empty where it does not; `None` where that is not known."""
    algorithm, _, digest = hash_and_digest.partition("=")
    if algorithm not in hashlib.algorithms_guaranteed or algorithm.startswith("shake"):
        return None
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return "missing"
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return "no regular file"
        if size.isdecimal() and int(size) != status.st_size:
            return "changed"
        if largest is not None and status.st_size > largest:
            return None
        seen = hashlib.new(algorithm, usedforsecurity=False)
        while block := file.read(_BLOCK):
            seen.update(block)
            if time.monotonic() > end:
                return None
    found = base64.urlsafe_b64encode(seen.digest()).rstrip(b"=").decode("ascii")
    return "" if found == digest else "changed"
