"""Whether a package is installed, asked without importing it."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec

__all__ = ["is_installed", "package_folders"]


def is_installed(name: str) -> bool:
    """Whether the package of the module `name` (`"torch_npu"`, `"habana_frameworks.torch"`) is installed.

    Nothing is imported for the answer, so below a package with an `__init__` no deeper level is asked. A
    folder without one is a namespace, in which anybody's files may lie: there the next level decides, and a
    bare folder that only has the right name is no package. An import that is forbidden by `None` in
    `sys.modules`, or that a finder fails at, counts as not installed.
    """
    return _spec(name) is not None


def package_folders(name: str) -> list[str]:
    """The folders of the installed package `name`; none where it is a single file, or not installed."""
    spec = _spec(name)
    return list((spec and spec.submodule_search_locations) or ())


def _spec(name: str) -> ModuleSpec | None:
    top, _, below = name.partition(".")
    if sys.modules.get(top, sys) is None:  # how an import is forbidden
        return None
    spec = _found(top)
    qualified = top
    while spec is not None and spec.origin is None and spec.submodule_search_locations is not None:
        if not below:
            return None
        part, _, below = below.partition(".")
        qualified = f"{qualified}.{part}"
        spec = PathFinder.find_spec(qualified, list(spec.submodule_search_locations))
    return spec


def _found(top: str) -> ModuleSpec | None:
    try:
        return find_spec(top)
    except (ImportError, ValueError):  # a finder that fails, or a module made by hand, without a spec
        return ModuleSpec(top, None, origin="sys.modules") if top in sys.modules else None
