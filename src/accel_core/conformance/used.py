"""What a plugin relies on of accel-core: the fields, hooks and names that it uses, the members it overrides.

Looked at in a child process, which imports the plugin's class, and with it torch; no device is asked.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accel_core._support.child import Stage
from accel_core.backend import PROJECT, Backend
from accel_core.conformance.described import members, written
from accel_core.detection.discovery import find
from accel_core.detection.loading import load
from accel_core.detection.records import CAUGHT, Candidate, root_cause
from accel_core.settings import Pin

__all__ = ["look"]


def look(arguments: dict[str, Any], stage: Stage) -> dict[str, object]:
    """What the plugin that declares that backend uses; `unread`: why its class could not be looked at."""
    pin = Pin(arguments["name"], arguments["distribution"])
    (candidate, *_) = find(pin, load=lambda points: [load(point) for point in points])
    if not isinstance(candidate, Candidate):
        return {"unread": candidate.outcome.reason}
    hooks = dict(_hooks(candidate.plugin))
    known = {
        "api_level": candidate.backend.api_level,
        "fields": list(_fields(candidate.backend)),
        "hooks": hooks,
        "names": sorted(set(_names(candidate.provenance.value))),
        "overrides": {},
        "calls": [],
    }
    try:
        stage("import of its class")
        kind = _class(candidate, "accel_create" in hooks)
    except CAUGHT as error:
        return {**known, "unread": root_cause(error)}
    own = [base for base in kind.__mro__ if _is_its_own(base)]
    overrides = {name: found for name, found in members(kind).items() if any(name in vars(b) for b in own)}
    return {
        **known,
        "overrides": {name: written(found) for name, found in overrides.items()},
        "calls": sorted(set().union(*map(_calls, own))),
    }


def _is_its_own(kind: type) -> bool:
    top = kind.__module__.partition(".")[0]
    return top != "accel_core" and top not in sys.stdlib_module_names


def _fields(backend: Backend) -> Iterator[str]:
    """The fields that say something."""
    plain = Backend(name="plain", priority=0, device_type="plain")
    required = ("name", "priority", "device_type")
    for name in Backend.__annotations__:
        if name != "provenance" and (name in required or getattr(backend, name) != getattr(plain, name)):
            yield name


def _hooks(plugin: object) -> Iterator[tuple[str, list[str]]]:
    """The hooks that a core must know, each with the arguments that it asks for."""
    for name in dir(plugin):
        function = getattr(plugin, name, None)
        mark = getattr(function, f"{PROJECT}_impl", None)
        if isinstance(mark, dict) and callable(function) and not mark.get("optionalhook"):
            yield mark.get("specname") or name, list(inspect.signature(function).parameters)


def _class(candidate: Candidate, by_hook: bool) -> type:
    """The class that the declaration names, else that of what the plugin's hook makes."""
    from accel_core import Accelerator, TorchAccelerator, accelerator

    module, _, name = candidate.backend.accelerator.partition(":")
    if module:
        kind = getattr(importlib.import_module(module), name)
    else:
        kind = type(accelerator(str(candidate.name))) if by_hook else TorchAccelerator
    if not (isinstance(kind, type) and issubclass(kind, Accelerator)):
        raise TypeError(f"{candidate.backend.accelerator} is no class of accel_core.Accelerator")
    return kind


def _calls(kind: type) -> set[str]:
    """What the class asks of `self` and of `super()`."""
    with contextlib.suppress(OSError, TypeError, SyntaxError):  # made without a source
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node)}
    return set()


def _is_self(node: ast.Attribute) -> bool:
    owner = node.value.func if isinstance(node.value, ast.Call) else node.value
    return isinstance(owner, ast.Name) and owner.id == ("super" if owner is not node.value else "self")


def _names(module: str) -> Iterator[str]:
    """The names that the plugin's sources take from `accel_core`."""
    top = sys.modules.get(module.partition(":")[0].partition(".")[0])
    file = getattr(top, "__file__", None)
    if file is None:
        return
    path = Path(file)
    for source in sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]:
        with contextlib.suppress(OSError, ValueError, SyntaxError):
            for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module == "accel_core" and not node.level:
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "accel_core":
                    yield node.attr
