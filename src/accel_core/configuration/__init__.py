"""Configuration files: which there are here. Nothing is parsed, and where there is none little is done.

The first choice of every process passes through here, mostly to find nothing: a few system calls a folder.
`file` reads what is found, `layers` puts the files and the environment into one.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accel_core.errors import SettingError

__all__ = ["LARGEST", "NAME", "Found", "search", "site_files", "user_file"]

#: What a file of ours is called in every folder but a project's, where it may also be `pyproject.toml`.
NAME = "accel.toml"
PYPROJECT = "pyproject.toml"
#: Bytes that a configuration file may have.
LARGEST = 1 << 20

#: What a line of `pyproject.toml` begins with that says anything to us, without brackets, blanks and quotes.
_SAID = (b"tool.accel]", b"tool.accel.", b"tool.accel=", b"tool]", b"tool=")
#: What marks the top of somebody's work, above which nothing belongs to it.
_TOPS = (".git", ".hg")


class Found(NamedTuple):
    """A configuration file that is there."""

    #: `"site"`, `"environment"` (of Python), `"user"`, `"project"`, or `"named"` by `ACCEL_CONFIG`.
    level: str
    path: str
    #: Whether only what it locks counts: `ACCEL_CONFIG` says that nothing else is to be read.
    locks_only: bool = False


def search(environ: Mapping[str, str]) -> tuple[Found, ...]:
    """The files that speak to this process, those first over which the later ones win.

    `ACCEL_CONFIG` in `environ` names one file instead of the user's and the project's, or `none`. Raises
    `SettingError` where it names a file that is not there.
    """
    named = environ.get("ACCEL_CONFIG", "").strip()
    found = [Found(level, path, bool(named)) for level, path in site_files(environ) if _has(path)]
    if named:
        if named.lower() != "none":
            found.append(Found("named", _given(named)))
        return tuple(found)
    user = user_file(environ)
    if user and _has(user):
        found.append(Found("user", user))
    project = _project(_home(environ))
    if project and project != user:
        found.append(Found("project", project))
    return tuple(found)


def site_files(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Level and path of the machine's file and of the Python environment's, whether they are there or not."""
    if sys.platform == "win32":
        folder = environ.get("PROGRAMDATA", "")
    else:
        folder = "/Library/Application Support" if sys.platform == "darwin" else "/etc"
    if folder:
        yield "site", f"{folder}/accel/{NAME}"
    yield "environment", f"{sys.prefix}/etc/accel/{NAME}"


def user_file(environ: Mapping[str, str]) -> str:
    """The path of the user's file, there or not; empty where no home is known."""
    if sys.platform == "win32":
        folder = environ.get("APPDATA", "").strip()
    else:
        folder = environ.get("XDG_CONFIG_HOME", "").strip()
        if not folder.startswith("/"):  # the XDG specification: a relative path is to be ignored
            home = _home(environ)
            kept = "Library/Application Support" if sys.platform == "darwin" else ".config"
            folder = f"{home}/{kept}" if home else ""
    return f"{folder}/accel/{NAME}" if folder else ""


def _home(environ: Mapping[str, str]) -> str:
    home = environ.get("USERPROFILE" if sys.platform == "win32" else "HOME", "") or os.path.expanduser("~")
    return home if os.path.isabs(home) else ""


def _given(named: str) -> str:
    path = os.path.abspath(os.path.expanduser(named))
    if not os.path.lexists(path):
        raise SettingError(
            f"ACCEL_CONFIG={named!r}: there is no {path}. Name a file, write ACCEL_CONFIG=none to read none, "
            "or unset ACCEL_CONFIG to have them searched for."
        )
    return path


def _project(home: str) -> str:
    """The nearest file of a project, from the working directory upward; empty where there is none.

    The search ends with the home folder, with the top of a repository, and where a file system ends.
    """
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        return ""
    here, end = _state(folder), _state(home)
    device = here.st_dev if here else None
    while here is not None and here.st_dev == device:
        base = folder.rstrip(os.sep)
        if _has(path := f"{base}{os.sep}{NAME}"):
            return path
        if _is_there(path := f"{base}{os.sep}{PYPROJECT}") and _mentions_us(path):
            return path
        is_home = end is not None and (here.st_ino, here.st_dev) == (end.st_ino, end.st_dev)
        above = os.path.dirname(folder)
        if is_home or above == folder or any(_is_there(f"{base}{os.sep}{top}") for top in _TOPS):
            break
        folder, here = above, _state(above)
    return ""


def _state(path: str) -> os.stat_result | None:
    try:
        return os.stat(path) if path else None
    except OSError:
        return None


def _has(path: str) -> bool:
    """Whether a file of ours is there: a link that leads nowhere too, as a policy must not be off by that."""
    return os.path.lexists(path)


def _is_there(path: str) -> bool:
    return os.access(path, os.F_OK)  # no exception is made for what is missing, as nearly all is


#: What was seen in each `pyproject.toml`, by what would change with it.
_seen: dict[tuple[str, int, int, int], bool] = {}


def _mentions_us(path: str) -> bool:
    """Whether a `pyproject.toml` has a table of ours; it is others' file, so what cannot be read has none."""
    try:
        state = os.stat(path)
        if not stat.S_ISREG(state.st_mode):
            return False
        key = (path, state.st_ino, state.st_mtime_ns, state.st_size)
        if key not in _seen:
            # Not blocking: a FIFO may have taken its place.
            descriptor = os.open(
                path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            )
            try:
                content = os.read(descriptor, LARGEST)
                _seen[key] = _says(content)
            finally:
                os.close(descriptor)
        return _seen[key]
    except OSError:
        return False


def _says(content: bytes) -> bool:
    """Whether a `pyproject.toml` may have a table of ours, in any form that TOML has for it.

    Without a regular expression: to compile one takes longer than all that the search does.
    """
    if b"accel" not in content:
        return False
    lines = (line.translate(None, b" \t\"'[") for line in content.splitlines() if b"tool" in line)
    return any(line.startswith(_SAID) for line in lines)
