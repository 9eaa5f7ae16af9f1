"""Find the files that run code when Python starts: `.pth` files, sitecustomize and usercustomize.

They are found as the module `site` finds them (https://docs.python.org/3/library/site.html).
The files are not executed. The distribution whose RECORD lists a file installed the file.
"""

from __future__ import annotations

import os
import site
import stat
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

__all__ = ["StartFile", "start_files", "variables_at_start"]

#: The maximum size in bytes of a file that is read. torch's RECORD has about 2 MB.
_MAX_BYTES = 16 << 20


class StartFile(NamedTuple):
    """A file that runs code when Python starts."""

    path: str
    #: The lines that Python runs. For a module this is its import, such as
    #: `("import sitecustomize",)`.
    lines: tuple[str, ...]
    #: The distribution that installed the file, such as `"coverage 7.6"`; empty if unknown.
    distribution: str


def start_files() -> tuple[StartFile, ...]:
    """Return the files that run when this Python starts, in the order in which they run.

    The result is empty if this Python was started without the module `site`.
    """
    if sys.flags.no_site:
        return ()
    return (*_path_files(), *_customizations())


def variables_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` as it was when this process started, before its start-up files ran.

    Only variables that `environ` has in common with this process are looked up. Without `/proc`, nothing
    is known, and `environ` is returned.
    """
    try:
        lines = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(environ)
    pairs = (os.fsdecode(line).partition("=") for line in lines if line)
    at_start = {name: value for name, _, value in pairs}
    variables = dict(environ)
    for name, value in environ.items():
        if os.environ.get(name) == value != at_start.get(name):
            variables.pop(name)
            if name in at_start:
                variables[name] = at_start[name]
    for name in at_start.keys() - os.environ.keys() - environ.keys():
        variables[name] = at_start[name]
    return variables


def _path_files() -> Iterator[StartFile]:
    """Yield the `.pth` files that contain code."""
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
    """Yield the modules sitecustomize and usercustomize if they exist."""
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
    """Return the distribution in the file's folder whose RECORD lists the file; empty if unknown."""
    # The first field of each line in RECORD is a path.
    line_start = f"\n{path.name},".encode()
    for folder in _entries(path.parent):
        if folder.suffix == ".dist-info":
            record = _read(folder / "RECORD").replace(b"\r\n", b"\n")
            if line_start in b"\n" + record:
                return folder.stem.replace("-", " ")
    return ""


def _entries(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder, or an empty list if the folder cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> bytes:
    """Return the content of a file; empty if it is not a regular file, is too large, or cannot be read."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return b""
        return path.read_bytes()
    except (OSError, ValueError):
        return b""
