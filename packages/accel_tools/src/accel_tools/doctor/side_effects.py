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

__all__ = [
    "SideEffect",
    "find_all_side_effects",
    "find_side_effects",
    "observe_in_child",
]


class SideEffect(NamedTuple):
    """A side effect of a plugin, which occurs in every process that lists accelerators."""

    #: A clause whose subject is the plugin, such as `"starts a thread"`.
    what: str
    #: The file and line of the plugin, such as `"accel_npu/__init__.py, line 3"`, or an empty string if
    #: unknown.
    where: str
    #: What the plugin should do instead.
    instead: str


def find_side_effects(provenance: Provenance, timeout: float) -> tuple[SideEffect, ...]:
    """Return the side effects of loading a plugin and calling its hook `accel_backends`.

    A child process loads the plugin. The side effects are in the order in which they occur. The result is
    empty if the plugin terminates the child process or takes longer than `timeout` seconds, because the
    verdict on the plugin reports such a failure.
    """
    effects = _observe_plugins_in_child_process([provenance], timeout)
    return effects if effects is not None else ()


def find_all_side_effects(
    provenances: Sequence[Provenance],
    timeout: float,
    examine: Callable[[Provenance], tuple[SideEffect, ...]],
) -> dict[Provenance, tuple[SideEffect, ...]]:
    """Return the side effects of each of several plugins.

    One child process first loads all plugins together. Only if this process shows a side effect, crashes or
    hangs, `examine` is called for each plugin.
    """
    if not provenances:
        return {}
    # Most plugins have no side effects, so one process observes all of them first.
    effects_of_all = _observe_plugins_in_child_process(provenances, timeout)
    if effects_of_all == ():
        return dict.fromkeys(provenances, ())
    return {provenance: examine(provenance) for provenance in provenances}


def _observe_plugins_in_child_process(
    provenances: Sequence[Provenance], timeout: float
) -> tuple[SideEffect, ...] | None:
    """Load the plugins in a child process, and return their side effects.

    Returns `None` if the child process crashes, hangs or cannot be started.
    """
    from accel_core.sandbox import child

    plugins = [(p.entry_point, p.distribution) for p in provenances]
    try:
        report = child.run(observe_in_child, {"plugins": plugins}, timeout)
    except OSError:  # No process can be started.
        return None
    if report.answer is None:  # The process crashed or was late.
        return None
    return tuple(SideEffect(*row) for row in report.answer["side_effects"])


_IMPORT_LATER = (
    "the plugin should import other packages in the module of the accelerator's class, "
    "or inside accel_probe"
)
_START_LATER = (
    "the plugin should start threads and processes where the accelerator is built, "
    "or inside accel_probe"
)
_RESTORE = "the plugin should change the state of the process only inside accel_probe, and restore it there"
#: For each audit event of Python (see "Audit events table" in Python's documentation), the clause about a
#: plugin that causes the event, and what to do instead. `{}` stands for the event's first argument.
_AUDIT_EVENTS = {
    "os.putenv": (
        "writes the environment variable {}",
        "the plugin should declare the variable in Backend.environment.defaults",
    ),
    "os.unsetenv": (
        "removes the environment variable {}",
        "the plugin should not change the environment of the user's program",
    ),
    "subprocess.Popen": ("starts the process {}", _START_LATER),
    "os.system": ("starts the process {}", _START_LATER),
    "os.posix_spawn": ("starts the process {}", _START_LATER),
    "os.fork": ("forks the process", _START_LATER),
}


class _Recorder:
    """A context manager that records a plugin's imports, threads, processes and changes of variables.

    Use a recorder only in a child process, because its audit hook cannot be removed.
    """

    def __init__(self) -> None:
        #: Pairs of a plugin's line and the module that the line imports.
        self.imports: list[tuple[str, str]] = []
        self.events: list[SideEffect] = []
        self._is_recording = False

    def __enter__(self) -> _Recorder:
        # Python calls find_spec() of the first finder for every import.
        sys.meta_path.insert(0, self)
        sys.addaudithook(self._on_audit_event)
        # Some supported releases of Python do not have an audit event for threads.
        self._original_start = threading.Thread.start
        threading.Thread.start = self._make_recording_start()  # type: ignore[assignment, method-assign]
        self._is_recording = True
        return self

    def __exit__(self, *_: object) -> None:
        self._is_recording = False
        threading.Thread.start = self._original_start  # type: ignore[method-assign]
        sys.meta_path.remove(self)

    def find_spec(self, name: str, *_: object) -> None:
        """Record that a plugin imports the module `name`.

        Returns `None`, so that Python asks the next finder for the module.
        """
        caller = sys._getframe(1)
        # No spec is returned, so Python continues with its other finders.
        location = _find_plugin_location(caller)
        if location:
            self.imports.append((location, name))

    def _make_recording_start(self) -> Callable[[threading.Thread], None]:
        """Return a function that replaces `threading.Thread.start` and records each call."""
        original_start = self._original_start

        def start(thread: threading.Thread) -> None:
            caller = sys._getframe(1)
            self._record_event(caller, "starts a thread", _START_LATER)
            original_start(thread)

        return start

    def _on_audit_event(self, event: str, arguments: tuple[object, ...]) -> None:
        """Record an event that Python reports to the audit hook, if the event is a side effect."""
        if not self._is_recording or event not in _AUDIT_EVENTS:
            return
        what, instead = _AUDIT_EVENTS[event]
        first_argument = arguments[0] if arguments else ""
        if isinstance(first_argument, bytes):
            first_argument = os.fsdecode(first_argument)
        caller = sys._getframe(1)
        self._record_event(caller, what.format(first_argument), instead)

    def _record_event(self, caller: FrameType, what: str, instead: str) -> None:
        location = _find_plugin_location(caller)
        if location:
            self.events.append(SideEffect(what, location, instead))


#: Modules that carry out a plugin's calls. Their frames are not lines of a plugin.
_INFRASTRUCTURE_MODULES = (*OWN_MODULES, "functools", "importlib", "os", "pluggy")


def _find_plugin_location(frame: FrameType | None) -> str:
    """Return the file and line of the outermost caller of `frame` that belongs to a plugin.

    The string is empty if no caller belongs to a plugin.
    """
    # The loop goes outwards, so the last location that it finds is the outermost line of the plugin.
    location = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module == __name__:  # This module called the plugin.
            break
        package = module.partition(".")[0]
        if package not in _INFRASTRUCTURE_MODULES and "importlib" not in module:
            location = _format_location(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return location


def _format_location(file: str, line: int) -> str:
    """Return a file and a line as text, such as `"accel_npu/__init__.py, line 3"`.

    The file's path is shortened by the longest folder in `sys.path` that contains the file.
    """
    longest_prefix = ""
    for folder in sys.path:
        prefix = folder.rstrip(os.sep) + os.sep
        is_longer = len(prefix) > len(longest_prefix)
        if folder and is_longer and file.startswith(prefix):
            longest_prefix = prefix
    return f"{file.removeprefix(longest_prefix)}, line {line}"


def observe_in_child(
    job: dict[str, Any], stage: Callable[[str], None]
) -> dict[str, object]:
    """Load the plugins in `job["plugins"]` in a child process, and return their side effects.

    `job["plugins"]` is a list of pairs of an entry point's name and its distribution. The side effects are
    returned as a list under the key `side_effects`.
    """
    plugins = [tuple(pair) for pair in job["plugins"]]
    vendor_modules: set[str] = set()
    before = take_snapshot()
    with _Recorder() as recorder:
        for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
            if (entry_point.name, entry_point.distribution) not in plugins:
                continue
            stage(f"import of the plugin of {entry_point.distribution}")
            # guard.preserved_state() is not used, because it would undo the plugin's changes.
            with contextlib.suppress(*PLUGIN_ERRORS), guard.stdout_to_stderr():
                for backend in declared_backends(Plugin(entry_point).hooks):
                    vendor_modules.update(backend.vendor_imports)
    effects = _recorded_side_effects(recorder, {"torch", *vendor_modules})
    effects += _lasting_side_effects(before)
    return {"side_effects": [tuple(effect) for effect in effects]}


def _recorded_side_effects(
    recorder: _Recorder, forbidden_modules: set[str]
) -> list[SideEffect]:
    """Return the imports of forbidden modules, and other recorded events, as side effects.

    There is one side effect per line of a plugin. Events during a forbidden import are left out,
    because the line that imports the module causes them.
    """
    # Only the first side effect of a line is reported.
    by_location: dict[str, SideEffect] = {}
    for location, module in recorder.imports:
        has_succeeded = module in sys.modules
        if module in forbidden_modules and has_succeeded:
            effect = SideEffect(f"imports {module}", location, _IMPORT_LATER)
            by_location.setdefault(location, effect)
    for event in recorder.events:
        by_location.setdefault(event.where, event)
    return list(by_location.values())


def _lasting_side_effects(before: ProcessSnapshot) -> list[SideEffect]:
    """Return the changes of the process since the snapshot `before` as side effects.

    Changes of variables, threads and processes are left out, because the recorder records them.
    """
    effects = []
    for change in changes_since(before):
        if change.kind not in ("environment", "thread", "process"):
            where = _format_location(change.file, change.line) if change.file else ""
            effects.append(SideEffect(change.what, where, _RESTORE))
    return effects
