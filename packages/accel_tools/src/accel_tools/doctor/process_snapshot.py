"""Changes that an import makes to the process, apart from its own modules.

Two snapshots are compared: functions of torch and of Python, signal handlers and hooks,
environment, locale, umask, working folder, threads and processes. Use this only in a child
process: a snapshot keeps objects alive, and reading the umask changes it for a moment.
"""

from __future__ import annotations

import contextlib
import locale
import os
import signal
import subprocess  # noqa: F401 - compared, so it has to be imported before a snapshot
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import NamedTuple

from accel_core.torch_import import defining_module

__all__ = ["Change", "ProcessSnapshot", "changes_since", "take_snapshot"]

#: Top-level names of the modules whose functions are compared.
_PACKAGES = (
    "torch",
    "os",
    "posix",
    "builtins",
    "subprocess",
    "signal",
    "threading",
    "importlib",
)
#: Classes of torch whose methods are compared too.
_CLASSES = (
    "Tensor",
    "Module",
    "Optimizer",
    "DataLoader",
    "DistributedDataParallel",
    "device",
    "Generator",
)
_HOOKS = (
    (sys, "excepthook"),
    (sys, "displayhook"),
    (sys, "unraisablehook"),
    (threading, "excepthook"),
)


class Change(NamedTuple):
    """One difference between two snapshots."""

    #: `"function"`, `"signal"`, `"hook"`, `"environment"`, `"locale"`, `"umask"`, `"folder"`, `"thread"` or
    #: `"process"`.
    kind: str
    #: What changed: `"torch.gather"`, `"SIGTERM"`, `"OMP_NUM_THREADS"`.
    name: str
    #: The module that defines the new function, or the new value.
    to: str
    #: File and line of a new function that is written in Python.
    file: str = ""
    line: int = 0

    @property
    def what(self) -> str:
        """Return the change as a clause: `"replaces torch.gather"`."""
        return _CLAUSES[self.kind].format(self.name, self.to)


_CLAUSES = {
    "function": "replaces {}",
    "signal": "handles {}",
    "hook": "replaces {}",
    "environment": "sets {}",
    "locale": "sets the locale to {1}",
    "umask": "sets the umask to {1}",
    "folder": "changes the working folder",
    "thread": "leaves the thread {0} running",
    "process": "leaves a process running",
}


class ProcessSnapshot(NamedTuple):
    """The state of this process at one moment."""

    #: The members of each module or class, by its dotted name.
    namespaces: Mapping[str, Mapping[str, object]]
    #: Values by kind of change and name: `{"umask": {"umask": "022"}}`.
    values: Mapping[str, Mapping[str, object]]


def take_snapshot() -> ProcessSnapshot:
    """Return everything that `changes_since` compares; of torch, only imported modules."""
    return ProcessSnapshot(dict(_namespaces()), _values())


def _namespaces() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield each namespace by its dotted name, with its members."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _PACKAGES and isinstance(module, ModuleType):
            yield name, dict(vars(module))
            if name.startswith("torch"):
                yield from _classes(name, module)
    environ_type = type(os.environ)
    members = {name: getattr(environ_type, name, None) for name in dir(environ_type)}
    yield "os.environ", {**members, **vars(os.environ)}


def _classes(name: str, module: ModuleType) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the compared classes that a module of torch defines."""
    for class_name in _CLASSES:
        class_ = vars(module).get(class_name)
        if not isinstance(class_, type):
            continue
        if class_.__module__ in (name, "torch._C", "torch"):
            yield f"{name}.{class_name}", dict(vars(class_))


def _values() -> dict[str, Mapping[str, object]]:
    hooks: dict[str, object] = {}
    for module, name in _HOOKS:
        hooks[f"{module.__name__}.{name}"] = getattr(module, name, None)
    return {
        "signal": {s.name: signal.getsignal(s) for s in signal.Signals},
        "hook": hooks,
        "environment": os.environ.copy(),
        "locale": {"locale": locale.setlocale(locale.LC_ALL)},
        "umask": {"umask": _umask()},
        "folder": {"folder": _folder()},
        "thread": {thread.name: thread.ident for thread in threading.enumerate()},
        "process": {pid: pid for pid in _child_pids()},
    }


def _umask() -> str:
    mask = os.umask(0o077)
    os.umask(mask)
    return f"{mask:03o}"


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def _child_pids() -> Iterator[str]:
    """Yield the pids of this process's children, as far as /proc lists them."""
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", "rb") as file:  # noqa: PTH123
                yield from file.read().decode().split()


# --- Differences ---------------------------------------------------------------------


def changes_since(before: ProcessSnapshot) -> list[Change]:
    """Return the differences from `before` to now: functions by name, then values by kind.

    A replaced function is listed only if another package defines the new one: torch and
    Python replace their own functions during further imports.
    """
    after = take_snapshot()
    changes = _replaced_functions(before, after)
    # Not sorted(), which may itself have been replaced.
    changes.sort(key=lambda change: change.name)
    for kind, values in after.values.items():
        changes += _changed_values(kind, before.values.get(kind, {}), values)
    return changes


def _replaced_functions(
    before: ProcessSnapshot, after: ProcessSnapshot
) -> list[Change]:
    """Return each replaced function once, by its shortest name.

    One function may be in several namespaces: `torch.gather` is in `torch._C` too.
    """
    by_function: dict[tuple[int, int], Change] = {}
    for namespace, members in after.namespaces.items():
        for name, old in before.namespaces.get(namespace, {}).items():
            new = members.get(name)
            if not _is_replaced(namespace, old, new):
                continue
            change = _function_change(f"{namespace}.{name}", new)
            key = id(old), id(new)
            by_function[key] = _shorter_name(change, by_function.get(key, change))
    return list(by_function.values())


def _shorter_name(first: Change, second: Change) -> Change:
    return min(first, second, key=lambda change: (len(change.name), change.name))


def _is_replaced(namespace: str, old: object, new: object) -> bool:
    """Return whether `new` replaces the function `old` and comes from another package."""
    if new is old or not callable(old) or not callable(new):
        return False
    package = defining_module(new).partition(".")[0]
    if not package or package in sys.stdlib_module_names:
        return False
    return package not in (namespace.partition(".")[0], "torch", "torchgen")


def _changed_values(
    kind: str, before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[Change]:
    for name, value in after.items():
        if name not in before or before[name] != value:
            yield _value_change(kind, name, value)
    if kind == "environment":
        for name in before:
            if name not in after:
                yield Change(kind, name, "")


def _value_change(kind: str, name: str, value: object) -> Change:
    if callable(value):
        return _function_change(name, value)._replace(kind=kind)
    return Change(kind, name, str(value))


def _function_change(name: str, function: object) -> Change:
    name = name.removeprefix("builtins.")
    module = defining_module(function)
    if isinstance(function, partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:
        return Change("function", name, module)
    return Change("function", name, module, code.co_filename, code.co_firstlineno)
