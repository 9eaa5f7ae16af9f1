"""Run the smallest program in a child process, with changes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from accel_core import isolation
from accel_core.sandbox import child
from accel_core.verdict import Verdict

#: Sets limits and then becomes the program; runs isolated from the program's variables.
_LAUNCHER = (
    "import os, resource, sys; limits, command = eval(sys.argv[1]); "
    "[resource.setrlimit(getattr(resource, name), pair) for name, pair in limits]; "
    "os.execv(command[0], command)"
)


@dataclass(frozen=True)
class Change:
    """The differences between a child process and a program that the user starts."""

    #: The names of environment variables that are unset.
    removed: frozenset[str] = frozenset()
    #: The names and values of environment variables that are set.
    assigned: tuple[tuple[str, str], ...] = ()
    #: Whether the script's folder, which is the working folder, is removed from the path.
    without_folder: bool = False
    #: Whether the folder with the user's packages is removed from the path.
    without_user_site: bool = False
    #: The paths of start-up files that do not run.
    without_start_files: frozenset[str] = frozenset()
    #: Pairs of a limit's name in the module `resource` and its soft and hard value.
    limits: tuple[tuple[str, tuple[int, int]], ...] = ()
    #: The working folder of the child process; empty for this process's working folder.
    folder: str = ""

    def __add__(self, other: Change) -> Change:
        """Return one change that combines both changes."""
        values: dict[str, Any] = {}
        for item in fields(self):
            left, right = getattr(self, item.name), getattr(other, item.name)
            if isinstance(left, frozenset):
                values[item.name] = left | right
            elif isinstance(left, tuple):
                values[item.name] = (*left, *right)
            else:
                values[item.name] = left or right
        return Change(**values)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables `environ` with the changes to variables applied."""
        variables = dict(environ)
        for name in self.removed:
            variables.pop(name, None)
        return {**variables, **dict(self.assigned)}


#: The change that changes nothing.
NOTHING = Change()


@dataclass(frozen=True)
class StartFile:
    """A file that runs when Python starts, and the lines that Python runs."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """The smallest program for one backend, or for torch alone."""

    #: The modules to import, in this order.
    modules: tuple[str, ...]
    environ: Mapping[str, str]
    #: The time limit in seconds.
    timeout: float
    #: The backend on which to compute, and the other backends; `verdict` is `None` to only import.
    verdict: Verdict | None = None
    others: tuple[Verdict, ...] = ()
    #: Whether the program only counts the devices.
    counts_only: bool = False
    #: The folders in which Python finds packages, without folders that start-up files add.
    site: tuple[str, ...] = ()
    user_site: str = ""
    start_files: tuple[StartFile, ...] = ()

    @property
    def name(self) -> str:
        """Return the program's name for people, such as `"the smallest program on npu"`."""
        if self.verdict is None:
            return f"`import {', '.join(self.modules)}`"
        return f"the smallest program on {self.verdict.name}"


@dataclass(frozen=True)
class Device:
    """The result of the computation on one device."""

    device: str
    #: The error; this field and the following fields are empty if the device computed the correct result.
    error: str = ""
    #: A plugin's explanation of the error.
    reason: str = ""
    #: The next step.
    hint: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    #: The modules that were imported.
    imported: tuple[str, ...] = ()
    #: The error of a failed import, or of a process that crashed or hung; otherwise empty.
    error: str = ""
    #: The files in the error's tracebacks.
    places: tuple[str, ...] = ()
    #: The files of all loaded modules, by the module's name.
    loaded: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: The number of devices; `None` if the program did not count them.
    count: int | None = None
    devices: tuple[Device, ...] = ()
    #: Whether the program exceeded the time limit.
    is_late: bool = False
    #: Whether the process could not be started, which proves nothing about the program.
    is_unstarted: bool = False
    #: The step in which the process crashed or hung, such as `"computation on npu:1"`.
    stage: str = ""
    seconds: float = 0.0

    @property
    def failure(self) -> str:
        """Return the first error verbatim; empty if the program succeeded."""
        errors = [self.error, *(device.error for device in self.devices)]
        return next(filter(None, errors), "")

    @property
    def reach(self) -> tuple[int, int]:
        """Return the number of imported modules, and the number of devices that computed."""
        computed = sum(not device.error for device in self.devices)
        return len(self.imported), computed

    @property
    def is_well(self) -> bool:
        """Return whether every step succeeded on every counted device."""
        return not self.failure


def run(program: Program, change: Change = NOTHING) -> Outcome:
    """Run the program like a script in the working folder, with a change, and return the outcome."""
    job = {
        "path": _path(program, change),
        "start": _start_lines(program, change),
        "without_folder": change.without_folder,
        "modules": program.modules,
        "verdict": program.verdict and isolation.encode(program.verdict),
        "others": [isolation.encode(other) for other in program.others],
        "counts_only": program.counts_only,
        "own_path": [entry for entry in sys.path if isinstance(entry, str) and entry],
    }

    def start(
        command: Sequence[str], *, env: object, **options: Any
    ) -> subprocess.Popen[bytes]:
        del env  # the change makes the variables
        arguments = [command[-1], repr(job)]
        return subprocess.Popen(
            _command(change, arguments),
            env=change.environment(program.environ),
            cwd=change.folder or None,
            **options,
        )

    start_time = time.monotonic()
    try:
        report = child.run(_not_called, {}, program.timeout, start=start)
    except OSError as error:
        text = f"its process could not be started: {error}"
        return Outcome(error=text, is_unstarted=True)
    outcome = _outcome(program, report)
    return replace(outcome, seconds=time.monotonic() - start_time)


def _not_called(_arguments: dict[str, Any], _stage: child.Stage) -> object:
    """Serve as the function argument of `child.run`, for a child that runs a different program."""
    raise AssertionError


def _command(change: Change, arguments: list[str]) -> list[str]:
    source = Path(__file__).with_name("program.py").read_text(encoding="utf-8")
    options = []
    if change.without_user_site:
        options.append("-s")
    if change.without_start_files:
        options.append("-S")
    options.append("-Xfaulthandler")
    command = [sys.executable, *options, "-c", source, *arguments]
    if not change.limits:
        return command
    limits = repr((change.limits, command))
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, limits]


def _path(program: Program, change: Change) -> list[str]:
    """Return the path for a Python that does not run start-up files; empty if Python runs them."""
    if not change.without_start_files:
        return []
    site = [
        folder
        for folder in program.site
        if not (change.without_user_site and folder == program.user_site)
    ]
    inherited = change.environment(program.environ).get("PYTHONPATH", "")
    standard = [entry for entry in sys.path if entry in _standard_folders()]
    return [*filter(None, inherited.split(os.pathsep)), *standard, *site]


def _standard_folders() -> set[str]:
    """Return the folders of Python's standard library."""
    library = Path(os.__file__).parent
    archive = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    folders = (library, library / "lib-dynload", library.parent / archive)
    return {str(folder) for folder in folders}


def _start_lines(program: Program, change: Change) -> list[str]:
    if not change.without_start_files:
        return []
    return [
        line
        for file in program.start_files
        if file.path not in change.without_start_files
        for line in file.lines
    ]


def _outcome(program: Program, report: child.ChildReport) -> Outcome:
    answer = report.answer
    if answer is None:
        return _unanswered(program, report)
    devices = tuple(Device(**row) for row in answer.get("devices", ()))
    return Outcome(
        imported=tuple(answer["imported"]),
        error=answer["error"],
        places=tuple(answer["places"]),
        loaded=dict(answer["loaded"]),
        count=answer.get("count"),
        devices=devices,
        stage=f"import {answer['module']}" if answer["error"] else "",
    )


def _unanswered(program: Program, report: child.ChildReport) -> Outcome:
    """Return the outcome of a run that crashed or was stopped; the report's stage gives its progress."""
    stage = report.stage
    names = [f"import {module}" for module in program.modules]
    done = len(names)
    if stage in names:
        done = names.index(stage)
    elif stage == "start":
        done = 0
    return Outcome(
        imported=program.modules[:done],
        error=f"its process {report.ending}{report.last_words}",
        is_late=report.timed_out,
        stage=stage,
    )
