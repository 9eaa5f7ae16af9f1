"""What the simulated modules offer, told to the test that compares it with the surface files."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any

from accel_tests import surfaces

from accel_simulated import VENDORS


def tell(vendor: str) -> dict[str, dict[str, Any]]:
    """By module, by name: the parameters of functions and classes, and of the classes' methods."""
    importlib.import_module(VENDORS[vendor].package)
    told = {}
    for exposed_as in surfaces.users_names(vendor):
        module = _resolve(exposed_as)
        if module is not None:
            names = (name for name in vars(module) if not name.startswith(("__", "_sim_")))
            told[exposed_as] = {name: _describe(getattr(module, name)) for name in names}
    return told


def _resolve(dotted: str) -> Any:
    """The module by attributes, as users reach it: importing that name would run its file again."""
    head, *tail = dotted.split(".")
    found: Any = sys.modules.get(head)
    for name in tail:
        found = getattr(found, name, None)
    return found


def _describe(value: Any) -> dict[str, Any]:
    if inspect.isclass(value):
        return {"kind": "class", "params": _parameters(value), "methods": _methods(value)}
    if inspect.isroutine(value) or callable(value):
        return {"kind": "function", "params": _parameters(value)}
    return {"kind": "module" if inspect.ismodule(value) else "attribute"}


def _methods(kind: type) -> dict[str, Any]:
    """The methods that we wrote: torch's base classes have more, as the vendors' have."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in ("torch", "builtins")]
    return {
        name: (_parameters(value) or [])[1:]
        for base in reversed(ours)
        for name, value in vars(base).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def _parameters(value: Any) -> list[dict[str, Any]] | None:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return None
    return [
        {
            "name": parameter.name,
            "kind": str(parameter.kind.description),
            "default": None if parameter.default is parameter.empty else repr(parameter.default),
        }
        for parameter in parameters
    ]
