"""Find defects of an installed package that its RECORD does not show.

These are libraries for another machine, links that lead nowhere, requirements of which another version is
installed, and metadata that an interrupted uninstall left behind.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

__all__ = [
    "describe_file_defect",
    "find_library_defect",
    "find_stale_metadata",
    "find_unmet_requirement",
]

#: The architectures of ELF files by their number (elf.h of glibc).
_ARCHITECTURES = {
    3: "x86", 21: "ppc64", 22: "s390", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V",
}  # fmt: skip
#: The place of the architecture's number in an ELF file.
_MACHINE = slice(18, 20)
#: How many levels below a package's folder libraries are looked for.
_DEPTH = 3


def find_library_defect(folder: str, failure: str) -> str:
    """Return what is wrong with a library in a package's folder that the error `failure` names.

    Returns an empty string if nothing is wrong with the libraries, or if the error names none.
    """
    names = set(re.findall(r"[\w.+-]+\.so[\w.]*", failure))
    for file in _files_in(Path(folder), _DEPTH):
        if file.name in names:
            defect = describe_file_defect(file)
            if defect:
                return f"{file} {defect}"
    return ""


def _files_in(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files in a folder and in its subfolders, down to `depth` levels below it."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_dir() and depth:
            yield from _files_in(entry, depth - 1)
        else:
            yield entry


def describe_file_defect(file: Path) -> str:
    """Return a clause about a library that cannot be loaded on this machine, or an empty string."""
    try:
        header = _read_header(file)
    except OSError as error:
        return _describe_link(file, error)
    if sys.platform != "linux":
        return ""
    if not header.startswith(b"\x7fELF"):
        return "is not a library"
    own_header = _read_header(Path(sys.executable))
    if header[_MACHINE] == own_header[_MACHINE]:
        return ""
    return (
        f"is built for {_architecture(header)}, but this Python is built for "
        f"{_architecture(own_header)}"
    )


def _read_header(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_MACHINE.stop)


def _describe_link(file: Path, error: OSError) -> str:
    """Return a clause about a link that leads nowhere, or an empty string for any other file."""
    if error.errno == errno.ELOOP:
        return "is part of a loop of symbolic links"
    if file.is_symlink():
        return f"is a link to {file.readlink()}, which does not exist"
    return ""


def _architecture(header: bytes) -> str:
    number = int.from_bytes(header[_MACHINE], sys.byteorder)
    return _ARCHITECTURES.get(number, f"the architecture {number}")


def find_unmet_requirement(
    distribution: str, modules_in_error: set[str]
) -> tuple[str, str]:
    """Return a clause about a requirement of which another version is installed, and the requirement.

    Only requirements whose name is in `modules_in_error` count, because others need not be the cause. Both
    texts are empty if there is none.
    """
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return "", ""
    for text in installed.requires or ():
        requirement = _read_requirement(text)
        if (
            requirement is None
            or requirement.name.replace("-", "_") not in modules_in_error
        ):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            needed = f"{requirement.name}{requirement.specifier}"
            what = f"{distribution} {installed.version} requires {needed}, but {version} is installed"
            return what, needed
    return "", ""


def _read_requirement(text: str) -> Requirement | None:
    """Return the requirement in a line of metadata, or `None` if it does not apply to this machine."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if requirement.marker is not None and not requirement.marker.evaluate(
        {"extra": ""}
    ):
        return None
    return requirement


def find_stale_metadata(distribution: str, version: str) -> list[str]:
    """Return the folders of metadata of other versions of a distribution than `version`, which is imported.

    Only the folder with the metadata of `version` is searched, because a distribution in another folder may
    be complete. The list is empty if no metadata is of `version`, which may be written in another way.
    """
    stale: list[Path] = []
    present: list[Path] = []
    for found in metadata.distributions(name=distribution):
        folder = getattr(
            found, "_path", None
        )  # the only way to a folder without RECORD
        if isinstance(folder, Path):
            if _is_same_version(found.version, version):
                present.append(folder)
            else:
                stale.append(folder)
    package_folders = {folder.parent for folder in present}
    return [str(folder) for folder in stale if folder.parent in package_folders]


def _is_same_version(first: str, second: str) -> bool:
    try:
        return Version(first) == Version(second)
    except (InvalidVersion, TypeError):
        return first == second
