"""Find the files that run code when Python starts: `.pth` files, sitecustomize and usercustomize.

The search follows the rules of the module `site` (https://docs.python.org/3/library/site.html).
The files are not executed.
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

__all__ = ["StartFile", "find_start_files", "variables_at_start"]

#: The maximum size in bytes of a file that is read. torch's RECORD has about 2 MB.
_MAX_BYTES = 16 << 20


class StartFile(NamedTuple):
    """A file that runs code when Python starts, such as a `.pth` file."""

    path: str
    #: The lines of code that Python runs. For a module, this is the import of the module, such as
    #: `("import sitecustomize",)`.
    lines: tuple[str, ...]
    #: The distribution that installed the file, such as `"coverage 7.6"`, or an empty string if unknown.
    distribution: str


def find_start_files() -> tuple[StartFile, ...]:
    """Return the files that run when this Python starts, in the order in which they run.

    The result is empty if this Python was started without the module `site`.
    """
    if sys.flags.no_site:
        return ()
    return (*_pth_files(), *_customization_modules())


def variables_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` as it was when this process started, before its start-up files ran.

    Only variables that `environ` has in common with this process are looked up. Without `/proc`, their
    earlier values are unknown, and `environ` is returned.
    """
    try:
        lines = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(environ)
    at_start = {}
    for line in lines:
        name, _, value = os.fsdecode(line).partition("=")
        at_start[name] = value
    variables = {}
    for name, value in environ.items():
        is_variable_of_this_process = os.environ.get(name) == value
        if not is_variable_of_this_process:
            variables[name] = value
        elif name in at_start:
            variables[name] = at_start[name]
        # Otherwise, a start-up file has set the variable.
    return variables


def _pth_files() -> Iterator[StartFile]:
    """Yield the `.pth` files that contain code."""
    folders = site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders = [site.getusersitepackages(), *folders]
    unique_folders = dict.fromkeys(Path(folder) for folder in folders)
    for folder in unique_folders:
        for path in _sorted_entries(folder):
            is_hidden = path.name.startswith(".")
            if path.suffix != ".pth" or is_hidden:
                continue
            lines = _import_lines(path)
            if lines:
                yield StartFile(str(path), lines, _installing_distribution(path))


def _import_lines(path: Path) -> tuple[str, ...]:
    """Return the lines of a `.pth` file that Python runs as code."""
    text = _read_small_file(path).decode("utf-8-sig", "replace")
    prefixes = ("import ", "import\t")
    return tuple(line for line in text.splitlines() if line.startswith(prefixes))


def _customization_modules() -> Iterator[StartFile]:
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
            line = f"import {name}"
            distribution = _installing_distribution(Path(path))
            yield StartFile(path, (line,), distribution)


def _installing_distribution(path: Path) -> str:
    """Return the distribution that installed the file, such as `"coverage 7.6"`.

    Returns an empty string if the distribution is unknown. The RECORD of this distribution, which is in the
    same folder, lists the file.
    """
    # The first field of each line in RECORD is a path.
    line_start = f"\n{path.name},".encode()
    for folder in _sorted_entries(path.parent):
        if folder.suffix == ".dist-info":
            record = _read_small_file(folder / "RECORD").replace(b"\r\n", b"\n")
            if line_start in b"\n" + record:
                # The name of the folder is such as "coverage-7.6.dist-info".
                return folder.stem.replace("-", " ")
    return ""


def _sorted_entries(folder: Path) -> list[Path]:
    """Return the sorted entries of a folder.

    Returns an empty list if the folder cannot be read.
    """
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _read_small_file(path: Path) -> bytes:
    """Return the content of a file, or empty bytes if it cannot or should not be read.

    The result is empty if the file is too large, not a regular file, or not readable.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            return b""
        return path.read_bytes()
    except (OSError, ValueError):
        return b""
