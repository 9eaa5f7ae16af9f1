"""One configuration file: opened once, judged by its owner, read as TOML, and each of its keys checked.

What is judged is the descriptor that is read, so that nobody can put another file in its place in between.
Nothing that lies there can keep us waiting: only regular files are opened, and without blocking.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

from accel_core.configuration import LARGEST, PYPROJECT, Found
from accel_core.errors import SettingError

__all__ = ["File", "Key", "Value", "read"]

LOCK = "lock"


class Key(Protocol):
    """What the table of settings says of one that a file may hold: a `settings.Variable`."""

    name: str
    key: str
    #: The types that TOML may give it.
    types: tuple[type, ...]
    #: Whether a project may set it: its file comes with whatever was downloaded.
    for_projects: bool
    parse: Callable[[str], object]

    def read(self, environ: Mapping[str, str]) -> object:
        """The value of its variable; raises `SettingError`."""


class Value(NamedTuple):
    """What a file says of one key."""

    #: As its environment variable would have it.
    text: str
    #: For messages: `"block = ['npu'] in /etc/accel/accel.toml, line 3"`.
    where: str


class File(NamedTuple):
    """What one file says."""

    level: str
    path: str
    values: Mapping[str, Value]
    #: The keys that nothing above may loosen, with where that is said.
    locks: Mapping[str, str]
    #: Why it is obeyed only where it is stricter than what is so without it; empty where it is trusted.
    distrust: str = ""
    #: Whether it is not trusted and cannot be understood either.
    unread: bool = False


#: What was read before, with all that would have changed with it.
_known: dict[Found, tuple[tuple[object, ...], File]] = {}


def read(found: Found, keys: Mapping[str, Key]) -> File:
    """What the file says.

    Raises `SettingError` that names the file, and the line where there is one, for what cannot be read or
    understood. Of a file that is not trusted that is `distrust`, as whoever wrote it must not stop us.
    """
    distrust = ""
    try:
        link = os.lstat(found.path)
        distrust = _of_others(found.path, link) if stat.S_ISLNK(link.st_mode) else ""
        if not distrust and not (stat.S_ISREG(link.st_mode) or stat.S_ISLNK(link.st_mode)):
            distrust = _of_others(found.path, link)
            raise SettingError(f"{found.path} is {_kind(link.st_mode)}, expected a file of settings in TOML.")
        descriptor = _opened(found.path, follow=stat.S_ISLNK(link.st_mode))
        try:
            opened = os.fstat(descriptor)
            distrust = distrust or _of_others(os.path.realpath(found.path), opened)
            times = (opened.st_mtime_ns, opened.st_ctime_ns)
            state = (distrust, opened.st_dev, opened.st_ino, opened.st_size, *times)
            before, known = _known.get(found, ((), None))
            if known is None or before != state:
                content = _content(found.path, descriptor, opened.st_size)
                known = _understood(found, content, keys, distrust)
                _known[found] = state, known
            return known
        finally:
            os.close(descriptor)
    except OSError as error:
        problem = SettingError(
            f"{found.path} cannot be read: {error.strerror or error}. Make it readable, remove it, or set "
            "ACCEL_CONFIG=none to read no configuration file."
        )
        problem.__cause__ = error
    except SettingError as error:
        problem = error
    if distrust:
        return File(found.level, found.path, {}, {}, distrust, unread=True)
    raise problem


# --- opening it ----------------------------------------------------------------------------------------


def _opened(path: str, *, follow: bool) -> int:
    """A descriptor of a regular file; `follow`: the path was a symbolic link, whose owner was judged."""
    flags = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    descriptor = os.open(path, flags | (0 if follow else getattr(os, "O_NOFOLLOW", 0)))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise SettingError(f"{path} is {_kind(mode)}, expected a file of settings in TOML.")
    return descriptor


def _kind(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((word for test, word in kinds if test(mode)), "a device")


def _of_others(path: str, state: os.stat_result) -> str:
    """Why what is at `path` is not ours to obey; empty where it is, and where the system has no such modes.

    Ours is what root or this user owns, and what nobody but its owner can have put there.
    """
    if sys.platform == "win32":
        return ""
    is_link = stat.S_ISLNK(state.st_mode)
    is_ours = state.st_uid in (0, os.geteuid())
    if is_ours and not is_link:
        return ""
    whose = f"it belongs to user {_user(state.st_uid)}"
    if not is_link and state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{whose}, and others may write it"
    try:
        folder = os.stat(os.path.dirname(path)).st_mode
    except OSError:
        return "its folder cannot be looked at"
    if is_link and folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        return "it is a link in a folder in which everybody may put another one"
    return f"{whose}, in a folder that everybody may write" if folder & stat.S_IWOTH and not is_ours else ""


def _user(number: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return str(number)


def _content(path: str, descriptor: int, size: int) -> str:
    parts: list[bytes] = []
    length = 0
    while length <= LARGEST and (part := os.read(descriptor, LARGEST + 1 - length)):
        parts.append(part)
        length += len(part)
    if max(length, size) > LARGEST:
        raise SettingError(f"{path} has {max(length, size)} bytes, expected at most {LARGEST} of settings.")
    content = b"".join(parts)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingError(
            f"{path}, line {line}: byte {content[error.start]:#04x} is not UTF-8, as TOML has to be."
        ) from None


# --- understanding it ----------------------------------------------------------------------------------


def _understood(found: Found, content: str, keys: Mapping[str, Key], distrust: str) -> File:
    table = _table(found.path, content)
    lines = _lines(content, in_pyproject=os.path.basename(found.path) == PYPROJECT)

    def at(name: str) -> str:
        return f"{found.path}, line {lines[name]}" if name in lines else found.path

    values = {}
    for name, value in table.items():
        if name == LOCK:
            continue
        if name not in keys:
            _unknown(name, at(name), keys)
        values[name] = _checked(keys[name], value, at(name), found)
    locks = {name: at(LOCK) for name in _locked(table, values, at(LOCK), found.level)}
    return File(found.level, found.path, values, locks, distrust)


def _table(path: str, content: str) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):  # here, as most processes have no file to read
        import tomllib
    else:
        import tomli as tomllib
    try:
        table: object = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        text = str(error)
        line = re.search(r"\(at line (\d+), column \d+\)", text)
        end = content.count("\n") + 1
        said = re.sub(r" \(at [^)]*\)$", "", text)
        raise SettingError(
            f"{path}, line {line[1] if line else end}: not TOML: {said}. Correct it."
        ) from None
    except (RecursionError, ValueError) as error:  # brackets in brackets; a number of 5,000 digits
        raise SettingError(f"{path}: cannot be read as TOML: {error}. Correct it.") from None
    names = ("tool", "accel") if os.path.basename(path) == PYPROJECT else ()
    for name in names:
        table = table.get(name, {}) if isinstance(table, dict) else table
    if not isinstance(table, dict):
        raise SettingError(f"{path}: [tool.accel] is {table!r}, expected a table.")
    return table


def _unknown(name: str, where: str, keys: Mapping[str, Key]) -> NoReturn:
    from difflib import get_close_matches

    known = [*keys, LOCK]
    variables = {key.name.lower(): key.key for key in keys.values()}
    meant = variables.get(name.lower()) or next(
        iter(get_close_matches(name.lower().replace("_", "-"), known, n=1)), ""
    )
    advice = f"Did you mean {meant!r}?" if meant else f"There are: {', '.join(known)}."
    raise SettingError(f"{where}: {name!r} is no setting of accel-core. {advice}")


def _checked(key: Key, value: object, where: str, found: Found) -> Value:
    """The value as its variable's text, which its variable's own parser has accepted."""
    said = f"{key.key} = {_shown(value)}"
    if found.level == "project" and not key.for_projects:
        raise SettingError(
            f"{where}: {key.key} is not read from a project's file, which may come from anywhere. Set "
            f"{key.name}, or write it into your own accel.toml."
        )
    text = _text(key, value)
    if text is None:
        raise SettingError(f"{where}: {said}: expected {_expected(key)}. Correct it.")
    if key.key == "cache" and text:  # relative to the file, and not to wherever the process runs
        text = os.path.join(os.path.dirname(found.path), os.path.expanduser(text))
    try:
        if text.strip():
            key.parse(text)
    except ValueError as error:
        raise SettingError(f"{where}: {said} is not valid, expected {error}. Correct it.") from None
    return Value(text.strip(), f"{said} in {where}")


def _text(key: Key, value: object) -> str | None:
    """The value as an environment variable holds it; `None` where it has another type."""
    if type(value) not in key.types:
        return None
    if isinstance(value, list):
        good = all(isinstance(item, str) and item.strip() and "," not in item for item in value)
        return ",".join(value) if good else None
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


_IN_WORDS = {str: "a text", list: "a list of names", bool: "true or false", int: "a number", float: ""}


def _expected(key: Key) -> str:
    return " or ".join(filter(None, (_IN_WORDS[kind] for kind in key.types)))


def _shown(value: object) -> str:
    """The value as TOML has it, short."""
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, (str, list, int, float)) else f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}…"


def _locked(table: Mapping[str, Any], values: Mapping[str, Value], where: str, level: str) -> tuple[str, ...]:
    """The keys that the file locks, each of which it must set."""
    names = table.get(LOCK, [])
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise SettingError(
            f"{where}: lock = {_shown(names)}: expected a list of settings' names. Correct it."
        )
    if names and level in ("project", "named"):
        raise SettingError(
            f"{where}: a {'project' if level == 'project' else 'file that ACCEL_CONFIG names'} locks "
            "nothing. Write the lock into the site's file, the Python environment's or your own."
        )
    for name in names:
        if name not in values:
            raise SettingError(
                f"{where}: lock names {name!r}, which this file does not set. Set it there too."
            )
    return tuple(names)


_ASSIGNED = re.compile(r"""\s*["']?([\w-]+)["']?\s*=""")


def _lines(content: str, *, in_pyproject: bool) -> dict[str, int]:
    """The line of each key of our table, for messages; what is written in an unusual way has none.

    A parser of TOML keeps no lines.
    """
    ours, inside = "tool.accel" if in_pyproject else "", not in_pyproject
    lines: dict[str, int] = {}
    for number, line in enumerate(content.split("\n"), 1):
        header = line.partition("#")[0].strip()
        if header.startswith("[") and header.endswith("]") and "]" not in header.strip("[]"):
            inside = re.sub(r"[\s\"']", "", header.strip("[]")) == ours
        elif inside and (key := _ASSIGNED.match(line)):
            lines.setdefault(key[1], number)
    return lines
