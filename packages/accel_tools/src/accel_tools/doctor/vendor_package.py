"""Check a vendor's installed package: its distribution, what it was built for, its libraries.

It is read from files; the package is not imported or loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES

from accel_core import hardware, package_folders, torch_build
from accel_core.packages import normalize_distribution
from accel_tools.doctor.installed_package import VendorPackage
from accel_tools.doctor.libraries import NOT_FOUND, Unmet, unmet_needs, why_unknown

__all__ = [
    "extensions",
    "misfits",
    "missing_libraries",
    "unmet_libraries",
]

#: Extension modules that are looked into, and folders below a package in which they are sought.
_MOST_EXTENSIONS = 50
_DEEPEST = 1


# --- Whether it fits -----------------------------------------------------------------------------------


def misfits(package: VendorPackage) -> Iterator[tuple[str, str]]:
    """Yield why the package does not fit the installed torch or Python, each with the next step."""
    build = torch_build()
    if build is not None:
        yield from _torch_misfits(package, build.version)
    if package.tags and not _is_for_this_python(package.tags):
        from platform import python_version

        reason = f"{package} was built for {', '.join(package.tags)}, and this is Python {python_version()}"
        step = f"pip install --force-reinstall '{package.distribution}'"
        yield reason, step


def _torch_misfits(package: VendorPackage, torch: str) -> Iterator[tuple[str, str]]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import InvalidVersion, Version

    try:
        installed = Version(torch)
    except InvalidVersion:  # a private build's own scheme lies in no range
        return
    for text in package.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if normalize_distribution(requirement.name) != "torch":
            continue
        if requirement.marker is not None and not requirement.marker.evaluate(
            {"extra": ""}
        ):
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            wanted = f"torch{requirement.specifier}"
            yield (
                f"{package} needs {wanted}, and torch {torch} is installed",
                f"pip install '{wanted}'",
            )
    mine, its = _build(package.version), _build(torch)
    if mine and its and mine != its:
        yield (
            f"{package} was built for a torch of the kind +{mine}, and torch {torch} is installed",
            f"install torch as {package.distribution} asks for it: the build +{mine}",
        )


def _build(version: str) -> str:
    """The kind of build that a version names behind its `+`: `"cpu"`, `"cuda"`, `"rocm"`, `"xpu"`; or none.

    torch's own wheels are named so; other words there, a commit's, say nothing of a kind.
    """
    local = version.partition("+")[2].lower()
    for mark, kind in (
        ("cpu", "cpu"),
        ("cu1", "cuda"),
        ("rocm", "rocm"),
        ("xpu", "xpu"),
    ):
        if local.startswith(mark):
            return kind
    return ""


def _is_for_this_python(tags: tuple[str, ...]) -> bool:
    from packaging.tags import parse_tag, sys_tags

    wanted = {tag for text in tags for tag in parse_tag(text)}
    return any(tag in wanted for tag in sys_tags())


# --- Its libraries -------------------------------------------------------------------------------------


def extensions(folder: str) -> list[str]:
    """Return the extension modules for this Python in a package's folder, and in the folders one level below.

    Deeper modules are loaded on demand, if at all. Files named `lib…` are left out, because these modules
    load them.
    """
    found: list[str] = []
    waiting = [(folder, 0)]
    while waiting and len(found) < _MOST_EXTENSIONS:
        here, depth = waiting.pop(0)
        for name in sorted(hardware.names_in(here)):
            path = f"{here}/{name}"
            if _is_extension(name):
                found.append(path)
            elif depth < _DEEPEST and "." not in name and os.path.isdir(path):  # noqa: PTH112
                waiting.append((path, depth + 1))
    return found[:_MOST_EXTENSIONS]


def _is_extension(name: str) -> bool:
    _, _, ending = name.partition(".")
    return f".{ending}" in EXTENSION_SUFFIXES and not name.startswith("lib")


def unmet_libraries(
    package: VendorPackage, environ: Mapping[str, str]
) -> tuple[Unmet, ...]:
    """Return the missing dependencies of the package's extension modules and of the libraries they load.

    These count as available: torch's libraries, because torch is imported first; the libraries that torch
    loads from NVIDIA's packages; and those of the package itself, which may load them by path.
    """
    if not hardware.on_linux():
        return ()
    loaded = [*_folders_below(package.folder, 2)]
    for torch in package_folders("torch")[:1]:
        site = os.path.dirname(torch)  # noqa: PTH120
        loaded += [
            f"{torch}/lib",
            *_folders_below(f"{site}/nvidia", 2),
            *_folders_below(f"{site}/torch.libs", 0),
        ]
    return tuple(unmet_needs(extensions(package.folder), environ, loaded))


def missing_libraries(unmet: Iterable[Unmet]) -> str:
    """Return each library once, with the first library that needs it, and the reason unless it is missing."""
    lines: dict[str, str] = {}
    for need in unmet:
        why = "" if need.why == NOT_FOUND else f": {need.why}"
        by = (
            f" (for {need.needed_by.rpartition('/')[2]}{why})"
            if need.needed_by
            else f" ({need.why})"
        )
        lines.setdefault(need.name, f"{need.name}{by}")
    return "; ".join(lines.values()) or why_unknown()


def _folders_below(folder: str, depth: int) -> Iterator[str]:
    yield folder
    if depth:
        for name in hardware.names_in(folder):
            if "." not in name and os.path.isdir(f"{folder}/{name}"):  # noqa: PTH112
                yield from _folders_below(f"{folder}/{name}", depth - 1)
