"""Check the requirements, the wheel's tags and the libraries of a vendor's installed package.

The package is not imported: all information is read from files.
"""

from __future__ import annotations

import os
import platform
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import parse_tag, sys_tags
from packaging.version import InvalidVersion, Version

from accel_core import hardware, package_folders, torch_build
from accel_core.packages import normalize_distribution
from accel_tools.doctor.experiments.process_settings import MACHINES_OF_64_BIT
from accel_tools.doctor.installed_package import VendorPackage
from accel_tools.doctor.libraries import (
    NOT_FOUND,
    UnmetDependency,
    find_unmet_dependencies,
    why_not_examined,
)

__all__ = [
    "describe_unmet",
    "find_extension_modules",
    "find_misfits",
    "package_unmet_dependencies",
]

#: The maximum number of extension modules to examine, and how many levels of subfolders of the package's
#: folder are searched.
_MAX_EXTENSIONS = 50
_MAX_DEPTH = 1


# --- Requirements and tags -----------------------------------------------------------


class Misfit(NamedTuple):
    """A reason why a vendor package does not fit the installed torch or Python."""

    reason: str
    #: The next step.
    step: str


def find_misfits(package: VendorPackage) -> Iterator[Misfit]:
    """Yield the reasons why a vendor package does not fit the installed torch or Python."""
    build = torch_build()
    if build is not None:
        yield from _requirement_misfits(package, build.version)
        yield from _build_misfits(package, build.version)
    if package.tags and not _fits_this_python(package.tags):
        yield _tag_misfit(package)


def _tag_misfit(package: VendorPackage) -> Misfit:
    """Return the misfit of a package that was built for a different Python or machine."""
    machine = platform.machine()
    has_64_bits = sys.maxsize > 2**32
    if has_64_bits and machine in MACHINES_OF_64_BIT:
        actual_machine = MACHINES_OF_64_BIT[machine]
        reason = (
            f"the machine appears as {machine} in this process, although its Python has 64 bits: the "
            "process, or its parent, was started by setarch or linux32"
        )
        return Misfit(reason, f"start the program with `setarch {actual_machine}`")
    tags = ", ".join(package.tags)
    python = f"Python {platform.python_version()} on {machine}"
    reason = f"{package} was built for {tags}, but this is {python}"
    return Misfit(reason, f"pip install --force-reinstall '{package.distribution}'")


def _requirement_misfits(
    package: VendorPackage, torch_version: str
) -> Iterator[Misfit]:
    """Yield a misfit if the package requires a different version of torch."""
    try:
        installed_version = Version(torch_version)
    except InvalidVersion:  # The version of a private build may not follow PEP 440.
        return
    for text in package.requires:
        requirement = _torch_requirement(text)
        if requirement is None:
            continue
        if not requirement.specifier.contains(installed_version, prereleases=True):
            required = f"torch{requirement.specifier}"
            reason = (
                f"{package} requires {required}, but torch {torch_version} is installed"
            )
            yield Misfit(reason, f"pip install '{required}'")


def _torch_requirement(text: str) -> Requirement | None:
    """Return the requirement if it is for torch and applies to this environment, or `None`."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if normalize_distribution(requirement.name) != "torch":
        return None
    marker = requirement.marker
    # A requirement of an optional extra of the package does not apply.
    if marker is not None and not marker.evaluate({"extra": ""}):
        return None
    return requirement


def _build_misfits(package: VendorPackage, torch_version: str) -> Iterator[Misfit]:
    """Yield a misfit if the package requires a different kind of torch build, such as CPU or CUDA."""
    required, installed = _build_kind(package.version), _build_kind(torch_version)
    are_both_known = required != "" and installed != ""
    if are_both_known and required != installed:
        reason = (
            f"{package} was built for a {required} build of torch, "
            f"but torch {torch_version} is installed"
        )
        step = f"install the {required} build of torch that {package.distribution} requires"
        yield Misfit(reason, step)


def _build_kind(version: str) -> str:
    """Return the kind of a torch build from its version: `"cpu"`, `"cuda"`, `"rocm"` or `"xpu"`.

    The kind is in the part after the plus sign, such as `"+cu128"`. The string is empty if this part
    is missing or contains something else, such as a commit.
    """
    _, _, local_part = version.lower().partition("+")
    # CUDA builds are named such as "cu128". The digit keeps other words that begin with "cu" apart.
    kinds_by_prefix = {"cpu": "cpu", "cu1": "cuda", "rocm": "rocm", "xpu": "xpu"}
    for prefix, kind in kinds_by_prefix.items():
        if local_part.startswith(prefix):
            return kind
    return ""


def _fits_this_python(wheel_tags: tuple[str, ...]) -> bool:
    """Return whether a wheel with the tags, such as `"cp311-cp311-linux_x86_64"`, fits this Python."""
    supported_tags = set(sys_tags())
    return any(not parse_tag(tag).isdisjoint(supported_tags) for tag in wheel_tags)


# --- Libraries -----------------------------------------------------------------------


def find_extension_modules(folder: str) -> list[str]:
    """Return the paths of extension modules in a package's folder and its direct subfolders.

    Modules at deeper levels are left out, because packages usually load them only on demand. Files whose
    names begin with `lib` are left out, because they are libraries that the modules load.
    """
    paths: list[str] = []
    folders_with_depth = deque([(folder, 0)])
    while folders_with_depth and len(paths) < _MAX_EXTENSIONS:
        current, depth = folders_with_depth.popleft()
        for name in sorted(hardware.names_in(current)):
            path = f"{current}/{name}"
            if _is_extension(name):
                paths.append(path)
            elif depth < _MAX_DEPTH and _is_subfolder(current, name):
                folders_with_depth.append((path, depth + 1))
    return paths[:_MAX_EXTENSIONS]


def _is_extension(name: str) -> bool:
    _, _, suffix = name.partition(".")
    return f".{suffix}" in EXTENSION_SUFFIXES and not name.startswith("lib")


def _is_subfolder(folder: str, name: str) -> bool:
    return "." not in name and os.path.isdir(f"{folder}/{name}")  # noqa: PTH112


def package_unmet_dependencies(
    package: VendorPackage, environ: Mapping[str, str]
) -> tuple[UnmetDependency, ...]:
    """Return the libraries that the package's extension modules need, but that are missing.

    Indirect dependencies are included. The libraries of torch and of NVIDIA's packages do not count as
    missing, because torch is imported first. The package's own libraries do not count as missing, because
    the package may load them by their paths.
    """
    if not hardware.on_linux():
        return ()
    # The package or torch loads the libraries in these folders itself, so they are not missing.
    folders_of_loaded = list(_folder_and_subfolders(package.folder, depth=2))
    torch_folders = package_folders("torch")
    if torch_folders:
        torch_folder = torch_folders[0]
        site_packages = os.path.dirname(torch_folder)  # noqa: PTH120
        folders_of_loaded += [
            f"{torch_folder}/lib",
            *_folder_and_subfolders(f"{site_packages}/nvidia", depth=2),
            f"{site_packages}/torch.libs",
        ]
    modules = find_extension_modules(package.folder)
    return tuple(find_unmet_dependencies(modules, environ, folders_of_loaded))


def describe_unmet(unmet: Iterable[UnmetDependency]) -> str:
    """Describe each missing library, with the first library that needs it.

    If `unmet` is empty because libraries were not examined, the text states why.
    """
    # A library that several files need is listed once.
    text_by_name: dict[str, str] = {}
    for dependency in unmet:
        text = _describe_dependency(dependency)
        text_by_name.setdefault(dependency.name, text)
    if not text_by_name:
        return why_not_examined()
    return "; ".join(text_by_name.values())


def _describe_dependency(dependency: UnmetDependency) -> str:
    """Return a text about a missing library, such as `"libhccl.so (for _C.so)"`.

    A reason other than that the library is not found is added.
    """
    name, reason = dependency.name, dependency.reason
    if not dependency.needed_by:
        return f"{name} ({reason})"
    needed_by = dependency.needed_by.rpartition("/")[2]
    if reason == NOT_FOUND:
        return f"{name} (for {needed_by})"
    return f"{name} (for {needed_by}: {reason})"


def _folder_and_subfolders(folder: str, depth: int) -> Iterator[str]:
    """Yield the folder and its subfolders, down to `depth` levels below the folder."""
    yield folder
    if depth:
        for name in hardware.names_in(folder):
            if _is_subfolder(folder, name):
                yield from _folder_and_subfolders(f"{folder}/{name}", depth - 1)
