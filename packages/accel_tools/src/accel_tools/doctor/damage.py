"""Find installed files that are missing, incomplete or unreadable, and libraries on a `noexec` mount.

The RECORD of a distribution contains the size of each of its files
(https://packaging.python.org/en/latest/specifications/recording-installed-packages/).
"""

from __future__ import annotations

import csv
import errno
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from accel_core import package_folders
from accel_tools.doctor.defects import (
    find_doubled_metadata,
    find_library_defect,
    find_unmet_requirement,
)
from accel_tools.doctor.experiments.loaded_files import hash_in_record
from accel_tools.doctor.records import Finding, Level, TopicResult
from accel_tools.setup.builds import INDEX

__all__ = [
    "Damage",
    "explain_noexec_mounts",
    "find_damage",
    "find_damage_of_import",
    "find_noexec_mount",
]

#: The maximum number of files that a sentence names; the others are counted.
_MAX_NAMES = 2
#: The end of the version of a torch build that PyTorch publishes in a package index of the same name.
_TORCH_BUILD = re.compile(r"\+(cpu|xpu|cu\d+|rocm[\d.]+)$")
#: The dynamic loader's error for a library that it cannot map as executable.
_MAP_ERROR = re.compile(r"(/[^\s:'\"]+): failed to map segment from shared object")


class Damage(NamedTuple):
    """A reason why installed files cannot be used, and the next step for the user."""

    #: The reason as a clause, such as `"torch 2.9.0 is damaged: torch/__init__.py is missing"`.
    what: str
    step: str


def find_damage_of_import(distribution: str, failure: str) -> Damage | None:
    """Return the damaged files that explain why a distribution cannot be imported.

    Returns `None` if no damage is found. Packages that the distribution requires, directly or indirectly,
    are checked too if the error `failure` contains the name of one of their modules.
    """
    damage = find_damage(distribution) or _find_changed_source(distribution, failure)
    if damage is not None:
        return damage
    words_in_error = set(re.findall(r"\w+", failure))
    for name in _required_distributions(distribution):
        # Only a distribution whose module the error names can be the cause.
        if words_in_error.isdisjoint(_module_names(name)):
            continue
        damage = find_damage(name)
        if damage is not None:
            return damage
    return _find_defect(distribution, failure, words_in_error)


def _find_changed_source(distribution: str, failure: str) -> Damage | None:
    """Return the first Python file whose content is not the installed content, after a syntax error.

    The size of such a file may be right: after a power failure, a file may consist of NUL bytes. Returns
    `None` for any other error, because a user may have changed a file on purpose.
    """
    if "SyntaxError" not in failure and "null bytes" not in failure:
        return None
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    for row in csv.reader((installed.read_text("RECORD") or "").splitlines()):
        if len(row) != 3 or not row[0].endswith(".py"):
            continue
        path, recorded_hash, _size = row
        if recorded_hash and recorded_hash != hash_in_record(
            Path(str(installed.locate_file(path)))
        ):
            what = f"{path} of {distribution} {installed.version} does not have its installed content"
            return Damage(what, _reinstall_command(distribution, installed.version))
    return None


def _find_defect(
    distribution: str, failure: str, words_in_error: set[str]
) -> Damage | None:
    """Return a defect that explains the error `failure`, although all files have the recorded size.

    `words_in_error` contains the words in `failure`.
    """
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
    for folder in package_folders(distribution.replace("-", "_")):
        defect = find_library_defect(folder, failure)
        if defect:
            return Damage(defect, _reinstall_command(distribution, version))
    doubled = find_doubled_metadata(failure)
    if doubled is not None:
        return Damage(doubled.what, f"rm -r {shlex.quote(doubled.folder)}")
    unmet = find_unmet_requirement(distribution, words_in_error)
    if unmet is not None:
        return Damage(unmet.what, f"pip install '{unmet.requirement}'")
    return None


def _required_distributions(distribution: str) -> list[str]:
    """Return the distributions that `distribution` requires, directly or indirectly."""
    required: list[str] = []
    unvisited = [distribution]
    while unvisited:
        for name in _required_names(unvisited.pop()):
            if name not in required:
                required.append(name)
                unvisited.append(name)
    return required


def _required_names(distribution: str) -> Iterator[str]:
    """Yield the names of the distributions that `distribution` requires, without its extras."""
    try:
        texts = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return
    # A text is such as "nvidia-nccl-cu13==2.29.7; platform_system == 'Linux'".
    for requirement in texts:
        name = re.match(r"[\w.-]+", requirement)
        is_optional = "extra ==" in requirement
        if name and not is_optional:
            yield name[0]


def _module_names(distribution: str) -> set[str]:
    """Return the names of the modules that a distribution contains, by its RECORD."""
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return set()
    # A file's path starts with the folder of a package, or is the name of a module such as "six.py".
    names = set()
    for path, _size in _recorded_sizes(installed):
        first_part = PurePosixPath(path).parts[0]
        is_metadata = first_part.endswith("-info")  # such as "six-1.17.0.dist-info"
        if not is_metadata:
            names.add(first_part.partition(".")[0])
    return names


def find_damage(distribution: str) -> Damage | None:
    """Return which files of a distribution are missing, have the wrong size, cannot be read or are hidden.

    Returns `None` if there are no such files, or if the distribution is not installed. Files outside
    `site-packages` and compiled Python files are not checked.
    """
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    unreadable: list[str] = []
    damaged: list[str] = []
    for path, expected_size in _recorded_sizes(installed):
        file = Path(str(installed.locate_file(path)))
        difference = _describe_size_difference(file, expected_size)
        if difference:
            damaged.append(f"{path} {difference}")
        elif not os.access(file, os.R_OK):
            unreadable.append(path)
    version = installed.version
    if damaged:
        what = f"{distribution} {version} is damaged: {_list_first_names(damaged)}"
        return Damage(what, _reinstall_command(distribution, version))
    if unreadable:
        what = f"this user lacks permission to read {_list_first_names(unreadable)}"
        top_folder = PurePosixPath(unreadable[0]).parts[0]
        folder = installed.locate_file(top_folder)
        return Damage(what, f"run as the owner of the files: chmod -R a+rX {folder}")
    return _find_hidden_module(installed)


def _find_hidden_module(installed: metadata.Distribution) -> Damage | None:
    """Return the first module that an additional folder hides, or `None`.

    Python prefers a folder with an `__init__.py` to a module of the same name in the same folder. Such a
    folder is left if an older version of the distribution was removed incompletely.
    """
    recorded = {path for path, _size in _recorded_sizes(installed)}
    for path in recorded:
        module = _module_path(path)
        if not module:
            continue
        hiding_path = f"{module}/__init__.py"
        hiding_file = Path(str(installed.locate_file(hiding_path)))
        if hiding_path not in recorded and hiding_file.is_file():
            name = installed.metadata["Name"]
            what = (
                f"{hiding_path} hides {path} of {name} {installed.version}, although it is not a file of "
                f"this version"
            )
            is_folder_recorded = any(
                other.startswith(f"{module}/") for other in recorded
            )
            # The folder may contain other files, such as the stubs of an extension.
            if is_folder_recorded:
                return Damage(what, f"rm {shlex.quote(str(hiding_file))}")
            return Damage(what, f"remove the folder {hiding_file.parent}")
    return None


def _module_path(path: str) -> str:
    """Return the path of a module without its suffix, or an empty string for another file."""
    for suffix in (".py", *EXTENSION_SUFFIXES):
        if path.endswith(suffix):
            return path.removesuffix(suffix)
    return ""


def _recorded_sizes(installed: metadata.Distribution) -> Iterator[tuple[str, int]]:
    """Yield the path and the size of each file that the distribution's RECORD lists.

    Files outside `site-packages`, compiled Python files, and files without a size are left out.

    `Distribution.files` is not used, because some versions of Python leave out missing files.
    """
    record = installed.read_text("RECORD") or ""
    for row in csv.reader(record.splitlines()):
        if len(row) != 3:  # The line is damaged.
            continue
        path, _hash, size = row
        is_in_package_folder = not path.startswith(("..", "/"))
        if is_in_package_folder and not path.endswith(".pyc") and size.isdigit():
            yield path, int(size)


def _describe_size_difference(file: Path, expected_size: int) -> str:
    """Return how a file differs from its expected size, such as `"is missing"`.

    Returns an empty string if the size is right, or if the file's folder cannot be read.
    """
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "is part of a loop of symbolic links"
        return ""
    if size == expected_size:
        return ""
    return f"has {size} bytes instead of {expected_size}"


def _list_first_names(clauses: Sequence[str]) -> str:
    """Return the first two clauses, and the number of the other clauses."""
    text = ", ".join(clauses[:_MAX_NAMES])
    others = len(clauses) - _MAX_NAMES
    if others > 0:
        text += f" and {others} more"
    return text


def _reinstall_command(distribution: str, version: str) -> str:
    """Return the command that installs the same version again."""
    command = f"pip install --force-reinstall --no-deps {distribution}=={version}"
    build = _TORCH_BUILD.search(version)
    if distribution == "torch" and build:
        command += f" --index-url {INDEX}/{build[1]}"
    return command


# --- Mounts --------------------------------------------------------------------------


def explain_noexec_mounts(topics: Sequence[TopicResult]) -> tuple[TopicResult, ...]:
    """Add the cause to findings about libraries on a file system that is mounted with `noexec`."""
    results = []
    for topic in topics:
        findings = tuple(_explain_noexec_mount(finding) for finding in topic.findings)
        results.append(topic._replace(findings=findings))
    return tuple(results)


def _explain_noexec_mount(finding: Finding) -> Finding:
    if finding.level is Level.OK:
        return finding
    damage = find_noexec_mount(finding.text)
    if damage is None:
        return finding
    return finding._replace(proof=damage.what, is_proven=True, step=damage.step)


def find_noexec_mount(error: str) -> Damage | None:
    """Return the `noexec` mount that caused a dynamic loader error, with the next step.

    Returns `None` if the error has a different cause, or if this system has no `noexec` mounts.
    """
    match = _MAP_ERROR.search(error)
    if match is None or not hasattr(os, "ST_NOEXEC"):
        return None
    library = Path(match[1]).absolute()
    try:
        mount_flags = os.statvfs(library).f_flag
    except OSError:
        return None
    is_noexec = bool(mount_flags & os.ST_NOEXEC)
    if not is_noexec:
        return None
    mount = _mount_point(library)
    if not mount:
        return None
    return Damage(
        f"{library.name} is on the file system {mount}, which is mounted with the option noexec",
        f"run as root: mount -o remount,bind,exec {mount}; or move the folder of {library.name} to another "
        "file system",
    )


def _mount_point(file: Path) -> str:
    """Return the mount point of a file, or an empty string if it is unknown.

    A bind mount has the device number of the mounted folder, so `Path.is_mount` does not recognize it.
    """
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    longest = ""
    for line in lines:
        # The kernel writes a space, for example, as \040.
        escaped = line.split()[4]
        mount = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), escaped)
        is_above = file.resolve().is_relative_to(mount)
        if is_above and len(mount) >= len(longest):
            longest = mount
    return longest
