"""Files that run code whenever Python starts: `.pth` files with imports, sitecustomize and usercustomize.

They are found as the module `site` finds them (https://docs.python.org/3/library/site.html).
The RECORD of a distribution shows which one installed a file. Nothing is executed.
"""

from __future__ import annotations

import site
import stat
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

__all__ = ["StartFile", "start_files"]

#: The largest file that is read; torch's RECORD has about 2 MB.
_MAX_BYTES = 16 << 20


class StartFile(NamedTuple):
    """A file that runs code when Python starts."""

    path: str
    #: The lines that run; of a module, its import: `("import sitecustomize",)`.
    lines: tuple[str, ...]
    #: `"coverage 7.6"`; empty if no distribution's RECORD lists the file.
    distribution: str


def start_files() -> tuple[StartFile, ...]:
    """Return the files that run in this Python, in their order; none if it runs without `site`."""
    if sys.flags.no_site:
        return ()
    return (*_path_files(), *_customizations())


def _path_files() -> Iterator[StartFile]:
    """Yield the `.pth` files that have lines to run."""
    folders = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders = [site.getusersitepackages(), *folders]
    for folder in dict.fromkeys(map(Path, folders)):
        for path in _entries(folder):
            if path.suffix == ".pth" and not path.name.startswith("."):
                lines = _import_lines(path)
                if lines:
                    yield StartFile(str(path), lines, _distribution(path))


def _import_lines(path: Path) -> tuple[str, ...]:
    text = _read(path).decode("utf-8-sig", "replace")
    prefixes = ("import ", "import\t")
    return tuple(line for line in text.splitlines() if line.startswith(prefixes))


def _customizations() -> Iterator[StartFile]:
    """Yield sitecustomize and usercustomize, as far as they exist."""
    names = ["sitecustomize"]
    if site.ENABLE_USER_SITE:
        names.append("usercustomize")
    for name in names:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.has_location and spec.origin is not None:
            path = spec.origin
            yield StartFile(path, (f"import {name}",), _distribution(Path(path)))


def _distribution(path: Path) -> str:
    """Return the distribution in the same folder whose RECORD lists the file; else empty."""
    # The first field of each line is a path.
    line_start = f"\n{path.name},".encode()
    for folder in _entries(path.parent):
        if folder.suffix == ".dist-info":
            record = _read(folder / "RECORD").replace(b"\r\n", b"\n")
            if line_start in b"\n" + record:
                return folder.stem.replace("-", " ")
    return ""


def _entries(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder; empty if it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> bytes:
    """Return the file's bytes; empty if it is not a regular file, is too large, or cannot be read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return b""
        return path.read_bytes()
    except (OSError, ValueError):
        return b""
