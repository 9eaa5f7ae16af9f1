"""Changes that an import makes to the process, apart from its own modules.

It compares, before and after: functions of torch and of Python, signal handlers and hooks, environment,
locale, umask, working folder, threads and processes. Use it only in a child process: a footprint keeps
objects alive, and reading the umask changes it for a moment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess  # noqa: F401 - watched, so that it has to be there before
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import NamedTuple

from accel_core.torch_import import defining_module

__all__ = ["Change", "Footprint", "changes", "footprint"]

#: Modules whose functions everybody relies on: the first part of their names.
_WATCHED = (
    "torch",
    "os",
    "posix",
    "builtins",
    "subprocess",
    "signal",
    "threading",
    "importlib",
)
#: Classes whose methods count as functions of torch.
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
    "sys.excepthook",
    "sys.displayhook",
    "sys.unraisablehook",
    "threading.excepthook",
)


class Change(NamedTuple):
    """One difference between two footprints."""

    #: `"function"`, `"signal"`, `"hook"`, `"environment"`, `"locale"`, `"umask"`, `"folder"`, `"thread"` or
    #: `"process"`.
    kind: str
    #: What: `"torch.gather"`, `"SIGTERM"`, `"OMP_NUM_THREADS"`.
    name: str
    #: The module that a new function comes from, or the new value.
    to: str
    #: The file and line of a new function, where it is written in Python.
    file: str = ""
    line: int = 0

    @property
    def what(self) -> str:
        """Return the change as a clause: `"replaces torch.gather"`."""
        return _WORDS[self.kind].format(self.name, self.to)


_WORDS = {
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


class Footprint(NamedTuple):
    """The state of the process now."""

    functions: Mapping[str, Mapping[str, object]]
    values: Mapping[str, Mapping[str, object]]


def footprint() -> Footprint:
    """Return everything that `changes` compares; for torch, only modules that are imported."""
    return Footprint(dict(_spaces()), {kind: dict(pairs) for kind, pairs in _values()})


def _spaces() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Each namespace by the name that users know, and what is in it."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _WATCHED and isinstance(module, ModuleType):
            yield name, dict(vars(module))
            for kind in _CLASSES if name.startswith("torch") else ():
                class_ = vars(module).get(kind)
                if isinstance(class_, type) and class_.__module__ in (
                    name,
                    "torch._C",
                    "torch",
                ):
                    yield f"{name}.{kind}", dict(vars(class_))
    environ = os.environ
    members = {name: getattr(type(environ), name, None) for name in dir(type(environ))}
    yield "os.environ", {**members, **vars(environ)}


def _values() -> Iterator[tuple[str, Iterator[tuple[str, object]]]]:
    yield "signal", ((s.name, signal.getsignal(s)) for s in signal.Signals)
    modules = {"sys": sys, "threading": threading}
    pairs = (hook.split(".") for hook in _HOOKS)
    yield (
        "hook",
        ((f"{m}.{name}", getattr(modules[m], name, None)) for m, name in pairs),
    )
    yield "environment", iter(os.environ.copy().items())
    yield "locale", iter([("locale", _locale())])
    yield "umask", iter([("umask", _umask())])
    yield "folder", iter([("folder", _folder())])
    yield "thread", ((t.name, t.ident) for t in threading.enumerate())
    yield "process", ((child, child) for child in _children())


def _locale() -> str:
    import locale

    return locale.setlocale(locale.LC_ALL)


def _umask() -> str:
    now = os.umask(0o077)
    os.umask(now)
    return f"{now:03o}"


def _folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def _children() -> Iterator[str]:
    """The pids of this process's children, where /proc tells them."""
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", "rb") as file:  # noqa: PTH123
                yield from file.read().decode().split()


def changes(before: Footprint) -> list[Change]:
    """List the differences from `before` to now, sorted by kind and then by name.

    A replaced function is listed only if its new version comes from another package than the old one: torch
    and Python replace functions of their own during further imports.
    """
    after = footprint()
    # One function stands in several namespaces, torch.gather also in torch._C: the shortest name tells it.
    by_function: dict[tuple[int, int], Change] = {}
    for space, names in after.functions.items():
        for name, old in before.functions.get(space, {}).items():
            new = names.get(name)
            if new is old or not callable(old) or not _is_foreign(space, new):
                continue
            change = _replaced(f"{space}.{name}", new)
            known = by_function.get((id(old), id(new)))
            if known is None or (len(change.name), change.name) < (
                len(known.name),
                known.name,
            ):
                by_function[id(old), id(new)] = change
    found = list(by_function.values())
    found.sort(
        key=lambda change: change.name
    )  # not sorted(), which may be among what was replaced
    for kind, now in after.values.items():
        old_values = before.values.get(kind, {})
        for name, value in now.items():
            if name not in old_values or old_values[name] != value:
                found.append(_changed(kind, name, value))
        if kind == "environment":
            found += [Change(kind, name, "") for name in old_values if name not in now]
    return found


def _changed(kind: str, name: str, value: object) -> Change:
    if callable(value):
        return _replaced(name, value)._replace(kind=kind)
    return Change(kind, name, str(value))


def _replaced(name: str, function: object) -> Change:
    code = getattr(
        function.func if isinstance(function, partial) else function, "__code__", None
    )
    file, line = (
        (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)
    )
    return Change(
        "function",
        name.removeprefix("builtins."),
        defining_module(function),
        file,
        line,
    )


def _is_foreign(space: str, function: object) -> bool:
    if not callable(function):
        return False
    top, home = defining_module(function).partition(".")[0], space.partition(".")[0]
    return (
        bool(top)
        and top not in (home, "torch", "torchgen")
        and top not in sys.stdlib_module_names
    )
