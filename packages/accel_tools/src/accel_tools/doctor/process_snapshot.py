"""Find the changes that an import makes to the process.

Two snapshots of the process are compared: functions of torch and Python, signal handlers, hooks,
environment variables, locale, umask, working folder, threads and child processes. Use this module
only in a child process, because a snapshot keeps objects alive, and reading the umask changes the
umask for a moment.
"""

from __future__ import annotations

import contextlib
import locale
import os
import signal
import subprocess  # noqa: F401 - A snapshot compares its functions only if it is imported.
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import NamedTuple

from accel_core.torch_import import defining_module

__all__ = ["Change", "ProcessSnapshot", "changes_since", "take_snapshot"]

#: The top-level packages and modules whose functions are compared.
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
#: The classes of torch whose methods are compared.
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
    """A difference between two snapshots of a process, such as a replaced function."""

    #: `"function"`, `"signal"`, `"hook"`, `"environment"`, `"locale"`, `"umask"`, `"folder"`, `"thread"` or
    #: `"process"`.
    kind: str
    #: The name of what changed, such as `"torch.gather"`, `"SIGTERM"` or `"OMP_NUM_THREADS"`.
    name: str
    #: The new value, or the module that defines the new function.
    to: str
    #: The file and the line of a new function that is written in Python.
    file: str = ""
    line: int = 0

    @property
    def what(self) -> str:
        """Return a clause that describes the change, such as `"replaces torch.gather"`."""
        return _CLAUSES[self.kind].format(self.name, self.to)


#: A clause about a change, by the kind of change. `{}` and `{0}` stand for the name, `{1}` for the new value.
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
    """The state of this process at one moment: functions of torch and Python, and other values."""

    #: The members of modules and classes, by the dotted name of the module or class.
    namespaces: Mapping[str, Mapping[str, object]]
    #: Values by kind of change and name, such as `{"umask": {"umask": "022"}}`.
    values: Mapping[str, Mapping[str, object]]


def take_snapshot() -> ProcessSnapshot:
    """Return a snapshot of this process's current state, which `changes_since` compares with a later state.

    Modules that have not been imported yet are not included.
    """
    return ProcessSnapshot(dict(_compared_namespaces()), _current_values())


def _compared_namespaces() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the dotted name and the members of each module and class whose functions are compared."""
    for name, module in list(sys.modules.items()):
        top_package = name.partition(".")[0]
        if top_package in _PACKAGES and isinstance(module, ModuleType):
            yield name, dict(vars(module))
            if name.startswith("torch"):
                yield from _compared_classes(name, module)
    # The import may also replace methods of os.environ, for all objects or for this object.
    environ_type = type(os.environ)
    methods = {name: getattr(environ_type, name, None) for name in dir(environ_type)}
    members_of_object = vars(os.environ)
    yield "os.environ", {**methods, **members_of_object}


def _compared_classes(
    module_name: str, module: ModuleType
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the name and the members of each compared class that a module of torch defines."""
    for class_name in _CLASSES:
        member = vars(module).get(class_name)
        if not isinstance(member, type):
            continue
        # A class that the module only imports is compared in the module that defines it. The classes
        # of the C++ part name a different module.
        is_defined_here = member.__module__ in (module_name, "torch._C", "torch")
        if is_defined_here:
            yield f"{module_name}.{class_name}", dict(vars(member))


def _current_values() -> dict[str, Mapping[str, object]]:
    """Return the current values of everything but functions, by kind of change and name."""
    hooks: dict[str, object] = {}
    for module, name in _HOOKS:
        hooks[f"{module.__name__}.{name}"] = getattr(module, name, None)
    signal_handlers = {s.name: signal.getsignal(s) for s in signal.Signals}
    return {
        "signal": signal_handlers,
        "hook": hooks,
        "environment": os.environ.copy(),
        "locale": {"locale": locale.setlocale(locale.LC_ALL)},
        "umask": {"umask": _read_umask()},
        "folder": {"folder": _working_folder()},
        "thread": {thread.name: thread.ident for thread in threading.enumerate()},
        "process": {pid: pid for pid in _child_pids()},
    }


def _read_umask() -> str:
    """Return the umask as octal digits, such as `"022"`."""
    umask = os.umask(0o077)  # The umask can be read only by setting it.
    os.umask(umask)
    return f"{umask:03o}"


def _working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def _child_pids() -> Iterator[str]:
    """Yield the process ids of this process's children that /proc lists."""
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", "rb") as file:  # noqa: PTH123
                yield from file.read().decode().split()


# --- Differences ---------------------------------------------------------------------


def changes_since(before: ProcessSnapshot) -> list[Change]:
    """Return how this process has changed since the snapshot `before`.

    Replaced functions come first, sorted by name. Changed values follow, grouped by kind. A replaced
    function is listed only if a package other than torch and Python defines the new function, because torch
    and Python themselves replace functions during imports.
    """
    after = take_snapshot()
    changes = _replaced_functions(before, after)
    # The import may have replaced the function sorted(), so the method of the list is used.
    changes.sort(key=lambda change: change.name)
    for kind, values in after.values.items():
        changes += _changed_values(kind, before.values.get(kind, {}), values)
    return changes


def _replaced_functions(
    before: ProcessSnapshot, after: ProcessSnapshot
) -> list[Change]:
    """Return one change per replaced function, with the function's shortest name.

    A function may be in several namespaces: `torch.gather` is also in `torch._C`.
    """
    by_function: dict[tuple[int, int], Change] = {}
    for namespace, members_after in after.namespaces.items():
        members_before = before.namespaces.get(namespace, {})
        for name, old in members_before.items():
            new = members_after.get(name)
            if not _is_foreign_replacement(namespace, old, new):
                continue
            change = _function_change(f"{namespace}.{name}", new)
            # The same function may have several names, of which the shortest is reported.
            key = id(old), id(new)
            if key in by_function:
                change = _with_shorter_name(change, by_function[key])
            by_function[key] = change
    return list(by_function.values())


def _with_shorter_name(first: Change, second: Change) -> Change:
    """Return the change whose name is shorter; of equally long names, the first in the alphabet."""
    return min(first, second, key=lambda change: (len(change.name), change.name))


def _is_foreign_replacement(namespace: str, old: object, new: object) -> bool:
    """Return whether `new` replaces the function `old`, and a package other than torch defines `new`.

    The standard library, and the package that contains `namespace`, do not count either.
    """
    if new is old or not callable(old) or not callable(new):
        return False
    package = defining_module(new).partition(".")[0]
    if not package or package in sys.stdlib_module_names:
        return False
    # A package may replace its own functions, and torch replaces functions of Python.
    own_package = namespace.partition(".")[0]
    return package not in (own_package, "torch", "torchgen")


def _changed_values(
    kind: str, before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[Change]:
    """Yield a change for each value that is new or different, and for each removed variable."""
    for name, value in after.items():
        if name not in before or before[name] != value:
            yield _value_change(kind, name, value)
    if kind == "environment":
        removed_names = [name for name in before if name not in after]
        for name in removed_names:
            yield Change(kind, name, to="")


def _value_change(kind: str, name: str, value: object) -> Change:
    if callable(value):
        return _function_change(name, value)._replace(kind=kind)
    return Change(kind, name, str(value))


def _function_change(name: str, new: object) -> Change:
    """Return the change that replaces the function called `name` with `new`, and where `new` is defined."""
    short_name = name.removeprefix("builtins.")
    module = defining_module(new)
    function = new.func if isinstance(new, partial) else new
    code = getattr(function, "__code__", None)
    if code is None:  # The function is not written in Python.
        return Change("function", short_name, module)
    return Change("function", short_name, module, code.co_filename, code.co_firstlineno)
