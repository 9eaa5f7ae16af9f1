"""Files that run code whenever Python starts: `.pth` files with imports, sitecustomize and usercustomize.

They are found as the module `site` does it (https://docs.python.org/3/library/site.html). The RECORD of a
distribution tells which one brought a file. Nothing is executed.
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

#: The longest file that is read; torch's RECORD has some 2 MB.
_MOST_BYTES = 16 << 20


class StartFile(NamedTuple):
    """A file, and the lines of it that run."""

    path: str
    #: The lines that run, or `import sitecustomize`.
    lines: tuple[str, ...]
    #: `"coverage 7.6"`; empty where no distribution's RECORD names the file.
    distribution: str


def start_files() -> tuple[StartFile, ...]:
    """Return the files that run in this Python, in their order; none if it runs without `site`."""
    if sys.flags.no_site:
        return ()
    return (*_path_files(), *_customizations())


def _path_files() -> Iterator[StartFile]:
    folders = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders = [site.getusersitepackages(), *folders]
    for folder in dict.fromkeys(map(Path, folders)):
        for path in _listed(folder):
            if path.suffix != ".pth" or path.name.startswith(
                "."
            ):  # hidden ones are passed over
                continue
            text = _read(path).decode("utf-8-sig", "replace")
            if lines := tuple(
                line
                for line in text.splitlines()
                if line.startswith(("import ", "import\t"))
            ):
                yield StartFile(str(path), lines, _owner(path))


def _customizations() -> Iterator[StartFile]:
    names = ["sitecustomize", *(["usercustomize"] if site.ENABLE_USER_SITE else [])]
    for name in names:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None and spec.has_location and spec.origin is not None:
            yield StartFile(spec.origin, (f"import {name}",), _owner(Path(spec.origin)))


def _owner(path: Path) -> str:
    """The distribution beside the file whose RECORD names it; the first field of a line is its path."""
    needle = f"\n{path.name},".encode()
    for folder in _listed(path.parent):
        if folder.suffix == ".dist-info":
            record = _read(folder / "RECORD").replace(b"\r\n", b"\n")
            if needle in b"\n" + record:
                return folder.stem.replace("-", " ")
    return ""


def _listed(folder: Path) -> list[Path]:
    """List a folder by name; empty if it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> bytes:
    """The file's bytes; empty for what is no regular file, too long, or cannot be read."""
    try:
        status = path.stat()
        fits = stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES
        return path.read_bytes() if fits else b""
    except (OSError, ValueError):
        return b""
