"""Side effects of a plugin during discovery: importing torch, starting a thread, and so on.

A child process loads the plugin as discovery does. Processes that choose an accelerator do not use this.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

from accel_core import Provenance, packages
from accel_core.backend import ENTRY_POINT_GROUP
from accel_core.exceptions import OWN_MODULES, PLUGIN_ERRORS
from accel_core.plugins import Plugin, declared_backends
from accel_core.sandbox import guard
from accel_tools.doctor.process_snapshot import (
    ProcessSnapshot,
    changes_since,
    take_snapshot,
)

__all__ = ["SideEffect", "find_all_side_effects", "find_side_effects", "observe"]


class SideEffect(NamedTuple):
    """One side effect, which every process meets that only lists accelerators."""

    #: A clause whose subject is the plugin: `"starts a thread"`.
    what: str
    #: The plugin's line: `"accel_npu/__init__.py, line 3"`; empty if unknown.
    where: str
    #: What the plugin should do instead.
    instead: str


def find_side_effects(provenance: Provenance, timeout: float) -> tuple[SideEffect, ...]:
    """Return the side effects of loading a plugin and calling `accel_backends`, in order.

    The result is empty for a plugin that ends its process or takes longer than `timeout`
    seconds: the verdict on the plugin reports that.
    """
    return _observe_in_child([provenance], timeout) or ()


def find_all_side_effects(
    provenances: Sequence[Provenance],
    timeout: float,
    examine: Callable[[Provenance], tuple[SideEffect, ...]],
) -> dict[Provenance, tuple[SideEffect, ...]]:
    """Return the side effects of several plugins.

    One child process loads all plugins. Only if it has a side effect, crashes or hangs is
    each plugin examined alone, by `examine`.
    """
    if not provenances or _observe_in_child(provenances, timeout) == ():
        return dict.fromkeys(provenances, ())
    return {provenance: examine(provenance) for provenance in provenances}


def _observe_in_child(
    provenances: Sequence[Provenance], timeout: float
) -> tuple[SideEffect, ...] | None:
    """Return the side effects of all the plugins; `None` if the child crashed or hung."""
    from accel_core.sandbox import child

    plugins = [(p.entry_point, p.distribution) for p in provenances]
    try:
        report = child.run(observe, {"plugins": plugins}, timeout)
    except OSError:
        return None
    if report.answer is None:
        return None
    return tuple(SideEffect(*row) for row in report.answer["side_effects"])


_LATER = "import it in the module of the accelerator's class, or inside accel_probe"
_WITH_THE_DEVICE = "start it where the accelerator is built, or inside accel_probe"
_LEAVE = "do not change it, or change it inside accel_probe and put it back"
#: Python's audit events ("Audit events table" of its documentation); the clause on a plugin
#: that causes the event, and what to do instead. `{}` is the event's first argument.
_EVENTS = {
    "os.putenv": (
        "writes the environment variable {}",
        "declare it in Backend.environment.defaults",
    ),
    "os.unsetenv": (
        "removes the environment variable {}",
        "leave the environment to the user of the program",
    ),
    "subprocess.Popen": ("starts the process {}", _WITH_THE_DEVICE),
    "os.system": ("starts the process {}", _WITH_THE_DEVICE),
    "os.posix_spawn": ("starts the process {}", _WITH_THE_DEVICE),
    "os.fork": ("forks the process", _WITH_THE_DEVICE),
}


class _Recorder:
    """Records imports and events while plugins are loaded; for a process that ends soon."""

    def __init__(self) -> None:
        #: The plugin's line and the module that it imports.
        self.imports: list[tuple[str, str]] = []
        self.events: list[SideEffect] = []
        self._is_on = False

    def __enter__(self) -> _Recorder:
        sys.meta_path.insert(0, self)  # finds no module, but sees every import
        sys.addaudithook(self._on_audit_event)
        # Not every release of Python has an audit event for threads.
        self._start = threading.Thread.start
        threading.Thread.start = self._recording_start()  # type: ignore[assignment, method-assign]
        self._is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_on = False
        threading.Thread.start = self._start  # type: ignore[method-assign]
        sys.meta_path.remove(self)

    def find_spec(self, name: str, *_: object) -> None:
        """Record the import of a module, and find nothing."""
        line = _plugin_line(sys._getframe(1))
        if line:
            self.imports.append((line, name))

    def _recording_start(self) -> Callable[[threading.Thread], None]:
        start = self._start

        def start_and_record(thread: threading.Thread) -> None:
            self._record(sys._getframe(1), "starts a thread", _WITH_THE_DEVICE)
            start(thread)

        return start_and_record

    def _on_audit_event(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._is_on or event not in _EVENTS:
            return
        what, instead = _EVENTS[event]
        argument = arguments[0] if arguments else ""
        if isinstance(argument, bytes):
            argument = os.fsdecode(argument)
        self._record(sys._getframe(1), what.format(argument), instead)

    def _record(self, frame: FrameType, what: str, instead: str) -> None:
        line = _plugin_line(frame)
        if line:
            self.events.append(SideEffect(what, line, instead))


#: Modules between a plugin's line and the recorder: they carry out its calls.
_PASSED_THROUGH = (*OWN_MODULES, "functools", "importlib", "os", "pluggy")


def _plugin_line(frame: FrameType | None) -> str:
    """Return the outermost line above `frame` that belongs to a plugin; empty if there is none."""
    line = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module == __name__:
            break
        package = module.partition(".")[0]
        if package not in _PASSED_THROUGH and "importlib" not in module:
            line = _line_of(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return line


def _line_of(file: str, line: int) -> str:
    """Return `"accel_npu/__init__.py, line 3"`, relative to the file's folder in `sys.path`."""
    prefixes = [entry.rstrip(os.sep) + os.sep for entry in sys.path if entry]
    prefixes = [prefix for prefix in prefixes if file.startswith(prefix)]
    return f"{file.removeprefix(max(prefixes, key=len, default=''))}, line {line}"


def observe(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: load the plugins of `job["plugins"]`, and return their side effects.

    `job["plugins"]` lists pairs: the name of an entry point and its distribution.
    """
    plugins = [tuple(pair) for pair in job["plugins"]]
    vendor_modules: set[str] = set()
    before = take_snapshot()
    with _Recorder() as recorder:
        for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
            if (entry_point.name, entry_point.distribution) not in plugins:
                continue
            stage(f"import of the plugin of {entry_point.distribution}")
            # No guard.preserved_state(): the changes are what is examined here.
            with contextlib.suppress(*PLUGIN_ERRORS), guard.stdout_to_stderr():
                for backend in declared_backends(Plugin(entry_point).hooks):
                    vendor_modules.update(backend.vendor_imports)
    effects = _recorded_effects(recorder, {"torch", *vendor_modules})
    effects += _lasting_effects(before)
    return {"side_effects": [tuple(effect) for effect in effects]}


def _recorded_effects(recorder: _Recorder, heavy: set[str]) -> list[SideEffect]:
    """Return one side effect for each line: an import of a module in `heavy`, or an event.

    Events during the import of torch are part of that import.
    """
    by_line: dict[str, SideEffect] = {}
    for line, name in recorder.imports:
        is_imported = name in sys.modules  # an import that failed has no effect
        if name in heavy and is_imported:
            by_line.setdefault(line, SideEffect(f"imports {name}", line, _LATER))
    for event in recorder.events:
        by_line.setdefault(event.where, event)
    return list(by_line.values())


def _lasting_effects(before: ProcessSnapshot) -> list[SideEffect]:
    """Return the changes since `before`, without those that are recorded as events."""
    effects = []
    for change in changes_since(before):
        if change.kind not in ("environment", "thread", "process"):
            where = _line_of(change.file, change.line) if change.file else ""
            effects.append(SideEffect(change.what, where, _LEAVE))
    return effects
