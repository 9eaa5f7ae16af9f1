"""Look up installed distributions, entry points and packages without importing anything.

Metadata on `sys.path` may be broken in many ways. A distribution whose metadata cannot
be read is skipped, with one line in the log, and never hides another distribution.
"""

import functools
import re
import sys
from importlib import metadata
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import NamedTuple

from accel_core.backend import Provenance
from accel_core.log import LOGGER
from accel_core.text import one_line

# --- Distributions --------------------------------------------------------------------


def normalize_distribution(name: str) -> str:
    """Return a distribution's normalized name: in lower case, with each run of `-_.`
    replaced with one `-`.

    The expression is from the PyPA's "Names and normalization". `packaging.utils` has
    such a function too, but importing it would add 12 to 20 ms to every choice.
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def entry_points(group: str) -> tuple[Provenance, ...]:
    """Return the entry points of `group` of all installed distributions, in the order
    of `sys.path`.

    If a distribution is installed more than once, the first one on `sys.path` is used.
    """
    result: list[Provenance] = []
    for normalized in _distributions_mentioning(group):
        distribution = _first_distribution(normalized)
        if distribution is None:
            continue
        name, version = name_and_version(distribution)
        for entry_point in _entry_points_of(distribution, group):
            provenance = Provenance(
                one_line(name),
                one_line(version),
                entry_point.name,
                entry_point.value,
            )
            result.append(provenance)
    return tuple(result)


def _first_distribution(normalized: str) -> metadata.Distribution | None:
    """Return the first distribution on `sys.path` with this normalized name."""
    for distribution in distributions(normalized):
        name, _version = name_and_version(distribution)
        # A finder may ignore the requested name.
        if normalize_distribution(name) == normalized:
            return distribution
    return None


def _distributions_mentioning(group: str) -> list[str]:
    """Return the normalized names of distributions that may have an entry point of
    `group`.
    """
    names: list[str] = []
    for distribution in distributions():
        # Searching the text is faster than parsing each file.
        if group in _read(distribution, "entry_points.txt"):
            name, _ = name_and_version(distribution)
            normalized = normalize_distribution(name)
            if normalized and normalized not in names:
                names.append(normalized)
    return names


def _entry_points_of(
    distribution: metadata.Distribution, group: str
) -> list[metadata.EntryPoint]:
    try:
        return [e for e in distribution.entry_points if e.group == group]
    except Exception as error:
        _log_skipped(_description(distribution), error)
        return []


def distributions(name: str | None = None) -> list[metadata.Distribution]:
    """Return the installed distributions, or those called `name`, in the order of
    `sys.path`.
    """
    try:
        return list(metadata.distributions(name=name))
    except Exception as error:  # from a third-party finder
        _log_skipped("a finder of distributions", error)
    # Search with Python's own finder only.
    context = metadata.DistributionFinder.Context(name=name)
    return list(metadata.MetadataPathFinder.find_distributions(context))


def name_and_version(distribution: metadata.Distribution) -> tuple[str, str]:
    """Return a distribution's name and version, or two empty strings if its metadata
    cannot be read.
    """
    try:
        fields = distribution.metadata
        if "Name" in fields and "Version" in fields:
            return fields["Name"], fields["Version"]
        _log_skipped(_description(distribution), "the name or the version is missing")
    except Exception as error:
        _log_skipped(_description(distribution), error)
    return "", ""


def version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or `None` if the distribution is
    not installed or its metadata cannot be read.
    """
    if not distribution:
        return None
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
    except Exception as error:
        _log_skipped(distribution, error)
        return None


class CheckedRequirement(NamedTuple):
    """The result of comparing a requirement with the installed distributions."""

    #: The name of the required distribution.
    name: str
    #: The installed version, or `None` if the distribution is not installed.
    installed: str | None
    #: Whether the requirement is met, or its marker does not apply.
    is_met: bool


def check_requirement(text: str) -> CheckedRequirement:
    """Compare a PEP 508 requirement with the installed distributions.

    Raises `ValueError` if the requirement is malformed or its marker cannot be
    evaluated.
    """
    # Imported here because the import takes 15 ms and few plugins need it.
    from packaging.requirements import Requirement

    required = Requirement(text)
    installed = version(required.name)
    if required.marker is not None and not required.marker.evaluate():
        is_met = True
    elif installed is None:
        is_met = False
    else:
        is_met = required.specifier.contains(installed, prereleases=True)
    return CheckedRequirement(required.name, installed, is_met)


def read(distribution: str, name: str) -> str:
    """Return the text of the distribution's metadata file called `name`, or an empty
    string if either does not exist.
    """
    try:
        return _read(metadata.distribution(distribution), name)
    except metadata.PackageNotFoundError:
        return ""
    except Exception as error:
        _log_skipped(distribution, error)
        return ""


def distribution_of_module(module: str) -> tuple[str, str]:
    """Return the name and version of the distribution that contains the module, or two
    empty strings if there is none.
    """
    if not package_folders(module):
        return "", ""
    # Most distributions have the name of the package that they contain.
    top_level, _, _ = module.partition(".")
    namesakes = distributions(top_level)
    if namesakes:
        return name_and_version(namesakes[0])
    # Each line of RECORD begins with the path of an installed file.
    beginning_of_line = "\n" + module.replace(".", "/") + "/"
    for distribution in distributions():
        if beginning_of_line in "\n" + _read(distribution, "RECORD"):
            return name_and_version(distribution)
    return "", ""


def _read(distribution: metadata.Distribution, name: str) -> str:
    try:
        return distribution.read_text(name) or ""
    except Exception as error:
        _log_skipped(_description(distribution), error)
        return ""


def _description(distribution: metadata.Distribution) -> str:
    """Return a string that identifies a distribution whose metadata cannot be read."""
    try:
        fields = distribution.metadata
        return f"{fields['Name']} {fields['Version']}"
    except Exception:
        return f"a distribution in {distribution.locate_file('')}"


def _log_skipped(name: str, why: object) -> None:
    _log_once(one_line(name), one_line(str(why)))


@functools.cache
def _log_once(name: str, why: str) -> None:
    LOGGER.warning("%s is skipped because its metadata cannot be read: %s", name, why)


# --- Packages -------------------------------------------------------------------------


def is_installed(name: str) -> bool:
    """Return whether the package of the module `name`, such as `"torch_npu"` or
    `"habana_frameworks.torch"`, is installed. Nothing is imported.

    Only an import could find the modules below a package with an `__init__`, so those
    modules are assumed to exist. A folder without an `__init__` is a namespace package:
    such a folder counts only if the next level of `name` is installed in it. If `None`
    in `sys.modules` forbids the import, or a finder fails, the result is False.
    """
    return _spec(name) is not None


def package_folders(name: str) -> list[str]:
    """Return the folders of the installed package `name`, or an empty list if it is a
    single file or is not installed.
    """
    spec = _spec(name)
    if spec is None or spec.submodule_search_locations is None:
        return []
    return list(spec.submodule_search_locations)


def _spec(name: str) -> ModuleSpec | None:
    """Return the spec of the first package with an `__init__` on the path to `name`, or
    of the module itself, or `None` if it is not installed.
    """
    top_level, *lower_levels = name.split(".")
    spec = _top_level_spec(top_level)
    for level in lower_levels:
        # Below a package with an `__init__`, only an import could find the next level.
        if spec is None or not _is_namespace(spec):
            return spec
        folders = list(spec.submodule_search_locations or ())
        spec = PathFinder.find_spec(f"{spec.name}.{level}", folders)
    if spec is None or _is_namespace(spec):
        return None
    return spec


def _top_level_spec(name: str) -> ModuleSpec | None:
    is_import_forbidden = name in sys.modules and sys.modules[name] is None
    if is_import_forbidden:
        return None
    try:
        return find_spec(name)
    except (ImportError, ValueError):  # a finder fails, or a module has no spec
        if name in sys.modules:
            return ModuleSpec(name, None, origin="sys.modules")
        return None


def _is_namespace(spec: ModuleSpec) -> bool:
    return spec.origin is None and spec.submodule_search_locations is not None
