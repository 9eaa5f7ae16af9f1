"""Find defects of an installed package that a comparison of its files with its RECORD does not show.

The defects are libraries for another architecture, broken symbolic links, requirements whose installed
version does not fit, and metadata that an interrupted uninstall has left.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

__all__ = [
    "describe_file_defect",
    "find_doubled_metadata",
    "find_library_defect",
    "find_stale_metadata",
    "find_unmet_requirement",
]

#: The architectures of ELF files by their number (elf.h of glibc).
_ARCHITECTURES = {
    3: "x86", 21: "ppc64", 22: "s390", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V",
}  # fmt: skip
#: The bytes of an ELF file that contain the number of the architecture (`e_machine` in elf.h of glibc).
_ARCHITECTURE_BYTES = slice(18, 20)
#: How many levels below a package's folder are searched for libraries.
_DEPTH = 3


def find_library_defect(folder: str, failure: str) -> str:
    """Return the defect of a library that an error names, such as `"/x/libfoo.so is not a library"`.

    Returns an empty string if no defect is found.

    Args:
        folder: The folder of a package. Only libraries in this folder are examined.
        failure: The error.
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
    """Return why a library cannot be loaded on this machine, such as `"is not a library"`.

    Returns an empty string if no defect is found.
    """
    try:
        header = _read_header(file)
    except OSError as error:
        return _describe_link(file, error)
    if sys.platform != "linux":
        return ""
    if not header.startswith(b"\x7fELF"):
        return "is not a library"
    own_header = _read_header(Path(sys.executable))
    if header[_ARCHITECTURE_BYTES] == own_header[_ARCHITECTURE_BYTES]:
        return ""
    return (
        f"is built for {_architecture(header)}, but this Python is built for "
        f"{_architecture(own_header)}"
    )


def _read_header(file: Path) -> bytes:
    """Return the first bytes of a file, up to the number of the architecture."""
    with file.open("rb") as opened:
        return opened.read(_ARCHITECTURE_BYTES.stop)


def _describe_link(file: Path, error: OSError) -> str:
    """Return a clause about a broken symbolic link, or an empty string for any other file.

    `error` is the error of the attempt to read the file.
    """
    if error.errno == errno.ELOOP:
        return "is part of a loop of symbolic links"
    if file.is_symlink():
        return f"is a link to {file.readlink()}, which does not exist"
    return ""


def _architecture(header: bytes) -> str:
    """Return the architecture in the header of an ELF file, such as `"x86-64"`."""
    number = int.from_bytes(header[_ARCHITECTURE_BYTES], sys.byteorder)
    return _ARCHITECTURES.get(number, f"the architecture {number}")


class UnmetRequirement(NamedTuple):
    """A requirement of a distribution that the installed version of the required package does not meet."""

    #: The problem as a clause, such as `"torch 2.9.0 requires sympy>=1.13, but 1.12 is installed"`.
    what: str
    #: The requirement, such as `"sympy>=1.13"`.
    requirement: str


def find_unmet_requirement(
    distribution: str, words_in_error: set[str]
) -> UnmetRequirement | None:
    """Return the distribution's first requirement that the installed version does not meet.

    A requirement counts only if its module is in `words_in_error`, because others may be unrelated to the
    error. Returns `None` if there is no such requirement.
    """
    try:
        installed = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    for text in installed.requires or ():
        requirement = _read_requirement(text)
        if requirement is None:
            continue
        module = requirement.name.replace("-", "_")
        if module not in words_in_error:
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            required = f"{requirement.name}{requirement.specifier}"
            what = (
                f"{distribution} {installed.version} requires {required}, "
                f"but {version} is installed"
            )
            hiding = _hiding_folder(requirement, version)
            if hiding:
                what += f" in {hiding}, which comes first in sys.path and hides a version that fits"
            return UnmetRequirement(what, required)
    return None


def _hiding_folder(requirement: Requirement, version: str) -> str:
    """Return the folder with the given version, if another folder has a version that fits the requirement.

    Python takes the version in the folder that comes first in `sys.path`, such as an egg that
    `easy-install.pth` puts there.
    """
    hiding = ""
    for installed in metadata.distributions(name=requirement.name):
        if installed.version == version and not hiding:
            hiding = str(installed.locate_file(""))
        elif installed.version and requirement.specifier.contains(
            installed.version, prereleases=True
        ):
            return hiding
    return ""


def _read_requirement(text: str) -> Requirement | None:
    """Return the requirement in a line of metadata, or `None` if it does not apply to this machine."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    marker = requirement.marker
    # A requirement of an optional extra of the package does not apply.
    if marker is not None and not marker.evaluate({"extra": ""}):
        return None
    return requirement


class DoubledMetadata(NamedTuple):
    """Metadata of several versions of one distribution, of which Python takes the wrong one."""

    #: The problem as a clause, such as `"x 1.0 has no files, but hides the metadata of x 2.0"`.
    what: str
    #: The folder with the stale metadata.
    folder: str


def find_doubled_metadata(failure: str) -> DoubledMetadata | None:
    """Return stale metadata that is the first in `sys.path`, and whose version the error `failure` contains.

    An interrupted upgrade leaves the folder of the old version's metadata without its RECORD. Returns `None`
    if there is no such folder.
    """
    first_by_name: dict[str, metadata.Distribution] = {}
    for installed in metadata.distributions():
        name = str(installed.metadata["Name"]).lower()
        first = first_by_name.setdefault(name, installed)
        if first is installed or not installed.read_text("RECORD"):
            continue
        folder = _leftover_folder(first, installed)
        if folder is not None and _contains_version(failure, first.version):
            what = (
                f"the metadata of {name} {first.version} remains beside {name} {installed.version}, and "
                "Python reads it first"
            )
            return DoubledMetadata(what, str(folder))
    return None


def _leftover_folder(
    first: metadata.Distribution, complete: metadata.Distribution
) -> Path | None:
    """Return the folder with the metadata of `first` if an interrupted upgrade to `complete` has left it.

    The folder is a `.dist-info` folder without a RECORD, beside that of `complete`. Other metadata without a
    RECORD, such as that of a development install, is in use.
    """
    # There is no public attribute.
    folder = getattr(first, "_path", None)
    complete_folder = getattr(complete, "_path", None)
    if not isinstance(folder, Path) or not isinstance(complete_folder, Path):
        return None
    is_beside = folder.parent == complete_folder.parent
    is_leftover = folder.suffix == ".dist-info" and not first.read_text("RECORD")
    return folder if is_beside and is_leftover else None


def _contains_version(failure: str, version: str | None) -> bool:
    """Return whether an error contains a version that is not a part of a longer number."""
    if not version:  # The metadata is damaged.
        return False
    pattern = rf"(?<![\w.]){re.escape(version)}(?![\w]|\.\d)"
    return re.search(pattern, failure) is not None


def find_stale_metadata(distribution: str, version: str) -> list[str]:
    """Return the metadata folders of a distribution that belong to another version than `version`.

    `version` is the version that Python imports. Only the folder that contains the metadata of `version` is
    searched, because a distribution in another folder may be complete. The list is empty if no metadata has
    this version, because a module may write its version in a different form than its metadata.
    """
    of_version: list[Path] = []
    of_other_versions: list[Path] = []
    for installed in metadata.distributions(name=distribution):
        # Without a RECORD, only this private attribute gives the folder.
        folder = getattr(installed, "_path", None)
        if not isinstance(folder, Path):
            continue
        if _is_same_version(installed.version, version):
            of_version.append(folder)
        else:
            of_other_versions.append(folder)
    site_packages = {folder.parent for folder in of_version}
    return [
        str(folder) for folder in of_other_versions if folder.parent in site_packages
    ]


def _is_same_version(first: str, second: str) -> bool:
    try:
        return Version(first) == Version(second)
    except (InvalidVersion, TypeError):
        return first == second
