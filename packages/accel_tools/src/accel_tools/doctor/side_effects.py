"""Find side effects of a plugin during discovery, such as importing torch or starting a thread.

A child process loads the plugin as discovery does. Only `accel doctor` uses this module.
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
    """One side effect, which occurs in every process that lists accelerators."""

    #: A clause whose subject is the plugin, such as `"starts a thread"`.
    what: str
    #: The file and line of the plugin, such as `"accel_npu/__init__.py, line 3"`; empty if unknown.
    where: str
    #: What the plugin should do instead.
    instead: str


def find_side_effects(provenance: Provenance, timeout: float) -> tuple[SideEffect, ...]:
    """Return the side effects of loading a plugin and calling its hook `accel_backends`, in order.

    The result is empty for a plugin that terminates its process or takes longer than `timeout`
    seconds, because the verdict on the plugin reports this.
    """
    return _observe_in_child([provenance], timeout) or ()


def find_all_side_effects(
    provenances: Sequence[Provenance],
    timeout: float,
    examine: Callable[[Provenance], tuple[SideEffect, ...]],
) -> dict[Provenance, tuple[SideEffect, ...]]:
    """Return the side effects of several plugins, by plugin.

    One child process loads all plugins. If the child has a side effect, crashes or hangs,
    `examine` is called for each plugin.
    """
    if not provenances or _observe_in_child(provenances, timeout) == ():
        return dict.fromkeys(provenances, ())
    return {provenance: examine(provenance) for provenance in provenances}


def _observe_in_child(
    provenances: Sequence[Provenance], timeout: float
) -> tuple[SideEffect, ...] | None:
    """Return the side effects of loading the plugins; `None` if the child process crashes or hangs."""
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
#: For each audit event of Python (see "Audit events table" in Python's documentation), the clause on a
#: plugin that causes the event, and what to do instead. `{}` stands for the event's first argument.
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
    """Record imports and events while plugins are loaded.

    Use it only in a child process, because the audit hook cannot be removed.
    """

    def __init__(self) -> None:
        #: Pairs of a plugin's line and the module that the line imports.
        self.imports: list[tuple[str, str]] = []
        self.events: list[SideEffect] = []
        self._is_on = False

    def __enter__(self) -> _Recorder:
        # As the first finder, the recorder gets every import.
        sys.meta_path.insert(0, self)
        sys.addaudithook(self._on_audit_event)
        # Some supported releases of Python do not have an audit event for threads.
        self._start = threading.Thread.start
        threading.Thread.start = self._recording_start()  # type: ignore[assignment, method-assign]
        self._is_on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_on = False
        threading.Thread.start = self._start  # type: ignore[method-assign]
        sys.meta_path.remove(self)

    def find_spec(self, name: str, *_: object) -> None:
        """Record the import of a module, and leave finding the module to the other finders."""
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


#: Modules that carry out a plugin's calls. Their frames are not lines of a plugin.
_PASSED_THROUGH = (*OWN_MODULES, "functools", "importlib", "os", "pluggy")


def _plugin_line(frame: FrameType | None) -> str:
    """Return the file and line of the outermost caller of `frame` that belongs to a plugin.

    The string is empty if no caller belongs to a plugin.
    """
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
    """Return a file and line as text, such as `"accel_npu/__init__.py, line 3"`.

    The file's path is relative to its folder in `sys.path`.
    """
    prefixes = [entry.rstrip(os.sep) + os.sep for entry in sys.path if entry]
    prefixes = [prefix for prefix in prefixes if file.startswith(prefix)]
    return f"{file.removeprefix(max(prefixes, key=len, default=''))}, line {line}"


def observe(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """Load the plugins of `job["plugins"]`, and return their side effects; runs in a child process.

    `job["plugins"]` is a list of pairs of an entry point's name and its distribution.
    """
    plugins = [tuple(pair) for pair in job["plugins"]]
    vendor_modules: set[str] = set()
    before = take_snapshot()
    with _Recorder() as recorder:
        for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
            if (entry_point.name, entry_point.distribution) not in plugins:
                continue
            stage(f"import of the plugin of {entry_point.distribution}")
            # The changes of state are examined, so guard.preserved_state() is not used.
            with contextlib.suppress(*PLUGIN_ERRORS), guard.stdout_to_stderr():
                for backend in declared_backends(Plugin(entry_point).hooks):
                    vendor_modules.update(backend.vendor_imports)
    effects = _recorded_effects(recorder, {"torch", *vendor_modules})
    effects += _lasting_effects(before)
    return {"side_effects": [tuple(effect) for effect in effects]}


def _recorded_effects(recorder: _Recorder, heavy: set[str]) -> list[SideEffect]:
    """Return one side effect per plugin line: the import of a module in `heavy`, or an event.

    Events during such an import are not listed, because the import's line causes them.
    """
    by_line: dict[str, SideEffect] = {}
    for line, name in recorder.imports:
        is_imported = name in sys.modules  # An import that failed has no effect.
        if name in heavy and is_imported:
            by_line.setdefault(line, SideEffect(f"imports {name}", line, _LATER))
    for event in recorder.events:
        by_line.setdefault(event.where, event)
    return list(by_line.values())


def _lasting_effects(before: ProcessSnapshot) -> list[SideEffect]:
    """Return the changes since `before`, without the kinds of change that are recorded as events."""
    effects = []
    for change in changes_since(before):
        if change.kind not in ("environment", "thread", "process"):
            where = _line_of(change.file, change.line) if change.file else ""
            effects.append(SideEffect(change.what, where, _LEAVE))
    return effects
