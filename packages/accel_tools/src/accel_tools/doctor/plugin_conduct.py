"""Side effects of a plugin during discovery: importing torch, starting a thread, and so on.

A child process loads that one plugin as discovery does. Processes that choose an accelerator do not use this.
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
from accel_tools.doctor.footprint import Footprint, changes, footprint

__all__ = ["Misstep", "conduct", "conducts", "observe"]


class Misstep(NamedTuple):
    """One side effect, which affects every process that only lists accelerators."""

    #: As a clause, the plugin being who: `"starts a thread"`.
    what: str
    #: The line of the plugin's own: `"accel_npu/__init__.py, line 3"`; empty where nothing tells it.
    where: str
    #: What to write instead.
    instead: str


def conduct(provenance: Provenance, timeout: float) -> tuple[Misstep, ...]:
    """List the side effects of loading that entry point's module and calling `accel_backends`, in order.

    The list is empty for a plugin that ends its process or takes longer than `timeout` seconds: the verdict
    on the plugin reports that.
    """
    return _observed([provenance], timeout) or ()


def conducts(
    provenances: Sequence[Provenance],
    timeout: float,
    each: Callable[[Provenance], tuple[Misstep, ...]],
) -> dict[Provenance, tuple[Misstep, ...]]:
    """Return the side effects of several plugins: one child loads all; `each` runs if it finds any."""
    if not provenances or _observed(provenances, timeout) == ():
        return dict.fromkeys(provenances, ())
    return {provenance: each(provenance) for provenance in provenances}


def _observed(
    provenances: Sequence[Provenance], timeout: float
) -> tuple[Misstep, ...] | None:
    """List what all of them do together; `None` if the child crashed or hung."""
    from accel_core.sandbox import child

    job: dict[str, object] = {
        "plugins": [(p.entry_point, p.distribution) for p in provenances]
    }
    try:
        report = child.run(observe, job, timeout)
    except OSError:
        return None
    if report.answer is None:
        return None
    return tuple(Misstep(*row) for row in report.answer["missteps"])


_LATER = "import it in the module of the accelerator's class, or inside accel_probe"
_WITH_THE_DEVICE = "start it where the accelerator is built, or inside accel_probe"
_LEAVE = "leave it as it is, or change it inside accel_probe and put it back"
#: Events that Python tells its audit hooks of ("Audit events table" of its documentation); which a plugin
#: causes, as a clause, and what to write instead. `{}` is the event's first argument.
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


class _Watch:
    """Notes what happens while a plugin is loaded; stays in this process, which ends soon, for good."""

    def __init__(self) -> None:
        #: The line of the plugin's own with a module that was asked for, or with what and instead.
        self.imported: list[tuple[str, str]] = []
        self.noted: list[tuple[str, str, str]] = []
        self._on = False

    def __enter__(self) -> _Watch:
        sys.meta_path.insert(0, self)  # finds nothing: it sees imports coming
        sys.addaudithook(self._audit)
        # Of threads Python tells its hooks in some releases alone.
        self._start = threading.Thread.start
        threading.Thread.start = self._starting()  # type: ignore[assignment, method-assign]
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False
        threading.Thread.start = self._start  # type: ignore[method-assign]
        sys.meta_path.remove(self)

    def find_spec(self, name: str, *_: object) -> None:
        """Nothing: the module is noted, with the line that led here."""
        if line := _line_of_plugin(sys._getframe(1)):
            self.imported.append((line, name))

    def _starting(self) -> Callable[[threading.Thread], None]:
        start = self._start

        def noted(thread: threading.Thread) -> None:
            if line := _line_of_plugin(sys._getframe(1)):
                self.noted.append((line, "starts a thread", _WITH_THE_DEVICE))
            start(thread)

        return noted

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if (
            self._on
            and event in _EVENTS
            and (line := _line_of_plugin(sys._getframe(1)))
        ):
            what, instead = _EVENTS[event]
            first = arguments[0] if arguments else ""
            self.noted.append(
                (
                    line,
                    what.format(
                        os.fsdecode(first) if isinstance(first, bytes) else first
                    ),
                    instead,
                )
            )


#: Modules between the plugin and us: what carries out its calls, and what puts its changes back.
_OTHERS = (*OWN_MODULES, "functools", "importlib", "os", "pluggy")


def _line_of_plugin(frame: FrameType | None) -> str:
    """The outermost line that is neither ours, pluggy's nor of Python's import: the plugin's own.

    Empty where there is none between the event and us.
    """
    found = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module == __name__:
            break
        if module.partition(".")[0] not in _OTHERS and "importlib" not in module:
            file = frame.f_code.co_filename
            found = f"{_short(file)}, line {frame.f_lineno}"
        frame = frame.f_back
    return found


def _short(file: str) -> str:
    """The path from the folder of `sys.path` that it lies in: `"accel_npu/__init__.py"`."""
    folders = [
        entry
        for entry in sys.path
        if entry and file.startswith(entry.rstrip(os.sep) + os.sep)
    ]
    return file[len(max(folders, key=len)) :].lstrip(os.sep) if folders else file


def observe(job: dict[str, Any], stage: Callable[[str], None]) -> dict[str, object]:
    """In the child: load the entry points of those names and distributions, and return their side effects."""
    wanted = [tuple(pair) for pair in job["plugins"]]
    vendors: set[str] = set()
    before = footprint()
    with _Watch() as watch:
        for entry_point in packages.entry_points(ENTRY_POINT_GROUP):
            if (entry_point.name, entry_point.distribution) in wanted:
                stage(f"import of the plugin of {entry_point.distribution}")
                # Nothing is put back: this process is there to see what the plugin changes.
                with contextlib.suppress(*PLUGIN_ERRORS), guard.stdout_to_stderr():
                    for backend in declared_backends(Plugin(entry_point).hooks):
                        vendors.update(backend.vendor_imports)
    found = _missteps(watch, {"torch", *vendors})
    return {"missteps": list(map(tuple, [*found, *_lasting(before)]))}


def _lasting(before: Footprint) -> list[Misstep]:
    """List what stays changed, without changes that were seen while they happened."""
    return [
        Misstep(
            change.what,
            f"{_short(change.file)}, line {change.line}" if change.file else "",
            _LEAVE,
        )
        for change in changes(before)
        if change.kind not in ("environment", "thread", "process")
    ]


def _missteps(watch: _Watch, heavy: set[str]) -> list[Misstep]:
    """One for each line of the plugin's: what torch does while it is imported is told as that import."""
    by_line: dict[str, Misstep] = {}
    for line, name in watch.imported:
        # A module that is not there was tried in vain.
        if name in heavy and name in sys.modules and line not in by_line:
            by_line[line] = Misstep(f"imports {name}", line, _LATER)
    for line, what, instead in watch.noted:
        if line not in by_line:
            by_line[line] = Misstep(what, line, instead)
    return list(by_line.values())
