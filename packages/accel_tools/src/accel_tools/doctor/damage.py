"""Files that cannot be loaded: missing, incomplete or unreadable ones, and a mount without `exec`.

The RECORD of a distribution has the size of each of its files
(https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from accel_tools.doctor.records import Finding, Level, TopicResult
from accel_tools.setup.builds import INDEX

__all__ = ["Damage", "damage_behind", "damage_of", "with_mounts", "without_exec"]

#: Files that a sentence names; the others are counted.
_MAX_NAMES = 2
#: torch's own builds, each with an index of this name.
_TORCH_BUILD = re.compile(r"\+(cpu|xpu|cu\d+|rocm[\d.]+)$")
_NOT_MAPPED = re.compile(r"(/[^\s:'\"]+): failed to map segment from shared object")


class Damage(NamedTuple):
    """A fault of files, as a clause, and the next step."""

    what: str
    step: str


def damage_behind(distribution: str, failure: str) -> Damage | None:
    """Return the damage that explains a failed import of a distribution; `None` if there is none.

    Packages that the distribution requires, directly or indirectly, are compared with their RECORD if
    the error `failure` contains the name of one of their modules.
    """
    damage = damage_of(distribution)
    words = set(re.findall(r"\w+", failure))
    required = iter(_required(distribution))
    while damage is None:
        name = next(required, None)
        if name is None:
            break
        if words.intersection(_modules(name)):
            damage = damage_of(name)
    return damage


def _required(distribution: str) -> list[str]:
    """Return the installed distributions that `distribution` requires, directly or indirectly."""
    found: dict[str, None] = {}
    waiting = [distribution]
    while waiting:
        for name in _requirements(waiting.pop()):
            if name not in found:
                found[name] = None
                waiting.append(name)
    return list(found)


def _requirements(distribution: str) -> Iterator[str]:
    """Yield the names of the distributions that `distribution` requires, without its extras."""
    try:
        texts = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return
    for text in texts:
        name = re.match(r"[\w.-]+", text)
        if name and "extra ==" not in text:
            yield name[0]


def _modules(distribution: str) -> set[str]:
    """Return the names of the modules that a distribution contains, by its RECORD."""
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return set()
    parts = {PurePosixPath(path).parts[0] for path, _ in _recorded(installed)}
    return {part.partition(".")[0] for part in parts if not part.endswith("-info")}


def damage_of(distribution: str) -> Damage | None:
    """Return which installed files differ from the RECORD; `None` if none does, or nothing is known.

    Files outside the packages' folder, and compiled ones of Python, are not compared.
    """
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    unreadable: list[str] = []
    damaged: list[str] = []
    for path, size in _recorded(installed):
        file = Path(str(installed.locate_file(path)))
        fault = _fault(file, size)
        if fault:
            damaged.append(f"{path} {fault}")
        elif not os.access(file, os.R_OK):
            unreadable.append(path)
    version = installed.version
    if damaged:
        what = f"{distribution} {version} is damaged: {_enumerated(damaged)}"
        return Damage(what, _reinstall(distribution, version))
    if unreadable:
        what = f"this user may not read {_enumerated(unreadable)}"
        folder = installed.locate_file(PurePosixPath(unreadable[0]).parts[0])
        return Damage(what, f"as the owner of the files: chmod -R a+rX {folder}")
    return None


def _recorded(installed: metadata.Distribution) -> Iterator[tuple[str, int]]:
    """Yield path and size of each file of the packages; `metadata.files` leaves out missing ones."""
    text = installed.read_text("RECORD") or ""
    for row in csv.reader(text.splitlines()):
        if len(row) != 3 or not row[2].isdigit():
            continue
        path = row[0]
        if not path.startswith(("..", "/")) and not path.endswith(".pyc"):
            yield path, int(row[2])


def _fault(file: Path, size: int) -> str:
    """Return what is wrong with the file's size; empty if it is right, or cannot be seen."""
    try:
        actual = file.stat().st_size
    except FileNotFoundError:
        return "is missing"
    except OSError:
        return ""
    return "" if actual == size else f"has {actual} bytes instead of {size}"


def _enumerated(clauses: Sequence[str]) -> str:
    rest = len(clauses) - _MAX_NAMES
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(clauses[:_MAX_NAMES]) + more


def _reinstall(distribution: str, version: str) -> str:
    """Return the command that installs the same version again."""
    command = f"pip install --force-reinstall --no-deps {distribution}=={version}"
    build = _TORCH_BUILD.search(version)
    if distribution == "torch" and build:
        command += f" --index-url {INDEX}/{build[1]}"
    return command


# --- Mounts --------------------------------------------------------------------------


def with_mounts(topics: Sequence[TopicResult]) -> tuple[TopicResult, ...]:
    """Return the topics; a fault of a library that may not be executed gets its mount as the cause."""
    return tuple(
        topic._replace(findings=tuple(map(_with_mount, topic.findings)))
        for topic in topics
    )


def _with_mount(finding: Finding) -> Finding:
    damage = without_exec(finding.what) if finding.level is not Level.OK else None
    if damage is None:
        return finding
    return finding._replace(proof=f"Proven: {damage.what}", step=damage.step)


def without_exec(failure: str) -> Damage | None:
    """Return the mount that forbids to execute the library of an error; `None` if none does."""
    match = _NOT_MAPPED.search(failure)
    if match is None or not hasattr(os, "ST_NOEXEC"):
        return None
    library = Path(match[1])
    try:
        is_forbidden = bool(os.statvfs(library).f_flag & os.ST_NOEXEC)
    except OSError:
        return None
    if not is_forbidden:
        return None
    mount = next(folder for folder in library.parents if folder.is_mount())
    return Damage(
        f"{library.name} is below {mount}, which is mounted with noexec",
        f"mount -o remount,exec {mount}, as root; or keep the folder on another file system",
    )
