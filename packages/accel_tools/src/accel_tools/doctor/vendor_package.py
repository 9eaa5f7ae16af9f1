"""Check the requirements, the wheel's tags and the libraries of a vendor's installed package.

All facts are read from files; the package is not imported.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from platform import python_version

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import parse_tag, sys_tags
from packaging.version import InvalidVersion, Version

from accel_core import hardware, package_folders, torch_build
from accel_core.packages import normalize_distribution
from accel_tools.doctor.installed_package import VendorPackage
from accel_tools.doctor.libraries import (
    NOT_FOUND,
    UnmetNeed,
    unmet_needs,
    why_unknown,
)

__all__ = [
    "extensions",
    "misfits",
    "missing_libraries",
    "unmet_libraries",
]

#: The maximum number of extension modules to examine, and how many levels of folders below the
#: package's folder are searched.
_MAX_EXTENSIONS = 50
_MAX_DEPTH = 1


# --- Requirements and tags -----------------------------------------------------------


def misfits(package: VendorPackage) -> Iterator[tuple[str, str]]:
    """Yield the reasons why the package does not fit the installed torch or Python, with next steps."""
    build = torch_build()
    if build is not None:
        yield from _unmet_requirements(package, build.version)
        yield from _other_build(package, build.version)
    if package.tags and not _is_for_this_python(package.tags):
        tags = ", ".join(package.tags)
        reason = (
            f"{package} was built for {tags}, but this is Python {python_version()}"
        )
        yield reason, f"pip install --force-reinstall '{package.distribution}'"


def _unmet_requirements(
    package: VendorPackage, torch_version: str
) -> Iterator[tuple[str, str]]:
    try:
        installed = Version(torch_version)
    except InvalidVersion:  # The version of a private build may not follow PEP 440.
        return
    for text in package.requires:
        requirement = _torch_requirement(text)
        if requirement is None:
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            required = f"torch{requirement.specifier}"
            reason = (
                f"{package} needs {required}, but torch {torch_version} is installed"
            )
            yield reason, f"pip install '{required}'"


def _torch_requirement(text: str) -> Requirement | None:
    """Return the requirement if it is for torch and applies to this environment; otherwise `None`."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if normalize_distribution(requirement.name) != "torch":
        return None
    marker = requirement.marker
    if marker is not None and not marker.evaluate({"extra": ""}):
        return None
    return requirement


def _other_build(
    package: VendorPackage, torch_version: str
) -> Iterator[tuple[str, str]]:
    """Yield a reason if the package was made for a different kind of torch build, such as CPU or CUDA."""
    required, installed = _kind_of_build(package.version), _kind_of_build(torch_version)
    if required and installed and required != installed:
        reason = (
            f"{package} was built for a +{required} build of torch, "
            f"but torch {torch_version} is installed"
        )
        step = f"install the +{required} build of torch that {package.distribution} requires"
        yield reason, step


def _kind_of_build(version: str) -> str:
    """Return the kind of build in a version's local part: `"cpu"`, `"cuda"`, `"rocm"` or `"xpu"`.

    The string is empty for other local parts, such as a commit.
    """
    local = version.partition("+")[2].lower()
    kinds = {"cpu": "cpu", "cu1": "cuda", "rocm": "rocm", "xpu": "xpu"}
    for prefix, kind in kinds.items():
        if local.startswith(prefix):
            return kind
    return ""


def _is_for_this_python(tags: tuple[str, ...]) -> bool:
    built_for = {tag for text in tags for tag in parse_tag(text)}
    return any(tag in built_for for tag in sys_tags())


# --- Libraries -----------------------------------------------------------------------


def extensions(folder: str) -> list[str]:
    """Return the extension modules for this Python in a package's folder and one level below it.

    Modules at deeper levels are left out, because they are loaded only on demand. Files called
    `lib…` are left out, because they are libraries that the modules load.
    """
    paths: list[str] = []
    queue = deque([(folder, 0)])
    while queue and len(paths) < _MAX_EXTENSIONS:
        current, depth = queue.popleft()
        for name in sorted(hardware.names_in(current)):
            path = f"{current}/{name}"
            if _is_extension(name):
                paths.append(path)
            elif depth < _MAX_DEPTH and _is_subfolder(current, name):
                queue.append((path, depth + 1))
    return paths[:_MAX_EXTENSIONS]


def _is_extension(name: str) -> bool:
    _, _, suffix = name.partition(".")
    return f".{suffix}" in EXTENSION_SUFFIXES and not name.startswith("lib")


def _is_subfolder(folder: str, name: str) -> bool:
    return "." not in name and os.path.isdir(f"{folder}/{name}")  # noqa: PTH112


def unmet_libraries(
    package: VendorPackage, environ: Mapping[str, str]
) -> tuple[UnmetNeed, ...]:
    """Return the missing dependencies of the package's extension modules and their libraries.

    torch's libraries and the libraries of NVIDIA's packages count as available, because torch is
    imported first. The package's libraries count as available, because the package may load them
    by path.
    """
    if not hardware.on_linux():
        return ()
    loaded = [*_folders_below(package.folder, 2)]
    for torch in package_folders("torch")[:1]:
        site = os.path.dirname(torch)  # noqa: PTH120
        loaded += [
            f"{torch}/lib",
            *_folders_below(f"{site}/nvidia", 2),
            f"{site}/torch.libs",
        ]
    return tuple(unmet_needs(extensions(package.folder), environ, loaded))


def missing_libraries(unmet: Iterable[UnmetNeed]) -> str:
    """Describe each missing library once, with the first library that needs it and the reason.

    Returns the reason of `why_unknown` if libraries cannot be examined.
    """
    descriptions: dict[str, str] = {}
    for need in unmet:
        descriptions.setdefault(need.name, _description(need))
    return "; ".join(descriptions.values()) or why_unknown()


def _description(need: UnmetNeed) -> str:
    """Describe a missing library, such as `"libhccl.so (for _C.so)"`.

    The reason is added, unless it is that the library is not found.
    """
    if not need.needed_by:
        return f"{need.name} ({need.why})"
    needed_by = need.needed_by.rpartition("/")[2]
    if need.why == NOT_FOUND:
        return f"{need.name} (for {needed_by})"
    return f"{need.name} (for {needed_by}: {need.why})"


def _folders_below(folder: str, depth: int) -> Iterator[str]:
    """Yield the folder and its subfolders, down to `depth` levels below the folder."""
    yield folder
    if depth:
        for name in hardware.names_in(folder):
            if _is_subfolder(folder, name):
                yield from _folders_below(f"{folder}/{name}", depth - 1)
