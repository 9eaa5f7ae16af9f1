"""Run the smallest program in a child process, with changes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from accel_core import isolation
from accel_core.sandbox import child
from accel_core.verdict import Verdict


@dataclass(frozen=True)
class Change:
    """A change to the environment of a program, such as an environment variable that is unset."""

    #: The names of environment variables that are unset.
    unset_variables: frozenset[str] = frozenset()
    #: The names and values of environment variables that are set.
    set_variables: tuple[tuple[str, str], ...] = ()
    #: Whether the script's folder, which is the working folder, is removed from `sys.path`.
    without_script_folder: bool = False
    #: Whether the folder with the user's packages is removed from `sys.path`.
    without_user_site: bool = False
    #: The names of modules that cannot be imported, as if they were not installed.
    hidden_modules: frozenset[str] = frozenset()
    #: The paths of files that do not exist for the program's Python code.
    hidden_files: frozenset[str] = frozenset()
    #: Whether the program reports the files that its Python code opens. The outcome is the same.
    reports_opened_files: bool = False
    #: The paths of start-up files that do not run.
    without_start_files: frozenset[str] = frozenset()
    #: Pairs of a limit's name in the module `resource` and its soft and hard value.
    limits: tuple[tuple[str, tuple[int, int]], ...] = ()
    #: The numbers of signals that are neither ignored nor blocked.
    default_signals: frozenset[int] = frozenset()
    #: The numbers of the processors that the program may use; none for no change.
    processors: frozenset[int] = frozenset()
    #: The umask, or 0 for no change.
    umask: int = 0
    #: Whether the program gets none of the open files that this process has inherited.
    without_inherited_files: bool = False
    #: Whether the program has an empty standard input, although that of this process is closed.
    empty_input: bool = False
    #: Whether the program has the normal scheduling policy.
    normal_scheduling: bool = False
    #: Whether the program has the normal personality of a process, see personality(2).
    normal_personality: bool = False
    #: The working folder of the child process, or an empty string for this process's working folder.
    working_folder: str = ""

    def __add__(self, other: Change) -> Change:
        """Return one change that combines both changes."""
        combined: dict[str, Any] = {}
        for field_ in fields(self):
            left, right = getattr(self, field_.name), getattr(other, field_.name)
            if isinstance(left, frozenset):
                combined[field_.name] = left | right
            elif isinstance(left, tuple):
                combined[field_.name] = (*left, *right)
            else:  # a boolean, a number or a folder
                combined[field_.name] = left or right
        return Change(**combined)

    def apply_to_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return a copy of the environment variables `environ` with the change applied."""
        variables = dict(environ)
        for name in self.unset_variables:
            variables.pop(name, None)
        variables.update(self.set_variables)
        return variables


#: The file in a line of the traceback that Python's faulthandler prints after a crash.
_FILE_OF_CRASH = re.compile(r'^  File "([^"]+)", line', re.MULTILINE)
#: The fields of `Change` that `starter` applies to the process.
_PROCESS_SETTINGS = (
    "limits",
    "default_signals",
    "processors",
    "umask",
    "normal_scheduling",
    "normal_personality",
)
#: The change that runs a program as it is.
NO_CHANGE = Change()


@dataclass(frozen=True)
class StartFile:
    """A file that runs when Python starts, and the lines in it that Python runs."""

    path: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A small program that imports torch and a vendor's package, and computes on each device."""

    #: The modules to import, in this order.
    modules: tuple[str, ...]
    environ: Mapping[str, str]
    #: The time limit in seconds.
    timeout: float
    #: The backend on which the program computes, or `None` for a program that only imports.
    verdict: Verdict | None = None
    #: All other backends.
    other_verdicts: tuple[Verdict, ...] = ()
    #: Whether the program only counts the devices.
    counts_only: bool = False
    #: The folders in which Python finds packages, without folders that start-up files add.
    package_folders: tuple[str, ...] = ()
    #: The folder with the user's packages, or an empty string if Python does not use such a folder.
    user_site: str = ""
    start_files: tuple[StartFile, ...] = ()

    @property
    def name(self) -> str:
        """Return the program's human-readable name, such as `"the smallest program on npu"`."""
        if self.verdict is None:
            return f"`import {', '.join(self.modules)}`"
        return f"the smallest program on {self.verdict.name}"


@dataclass(frozen=True)
class Device:
    """The result of a program's computation on one device."""

    device: str
    #: The error. This field and the following fields are empty if the device computed the correct result.
    error: str = ""
    #: A plugin's explanation of the error.
    reason: str = ""
    #: The next step.
    hint: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of one run of a `Program`."""

    #: The modules that were imported.
    imported: tuple[str, ...] = ()
    #: The error of a failed import, or of a process that crashed or hung. Otherwise, an empty string.
    error: str = ""
    #: The message of the exception that the import raised, if `error` is the cause of this exception:
    #: torch raises an exception of its own when a package that it autoloads fails.
    raised_message: str = ""
    #: The files in the error's tracebacks.
    traceback_files: tuple[str, ...] = ()
    #: The files of all loaded modules, by the module's name.
    module_files: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: The files that Python code opened, in this order, if `Change.reports_opened_files` is set.
    opened_files: tuple[str, ...] = field(default=(), repr=False)
    #: The number of devices, or `None` if the program did not count them.
    count: int | None = None
    devices: tuple[Device, ...] = ()
    #: How the process ended if it crashed or was stopped, such as `"died of SIGSEGV"`. Otherwise, an empty
    #: string.
    ending: str = ""
    #: Whether SIGKILL ended the process. The kernel sends it to a process that needs too much memory.
    is_killed: bool = False
    #: Whether the program exceeded the time limit.
    is_timed_out: bool = False
    #: Whether the process could not be started, which proves nothing about the program.
    start_failed: bool = False
    #: What the process printed last, as a clause such as `"last words: error 46: the device is busy"`.
    printed: str = ""
    #: The step in which the process crashed or hung, such as `"computation on npu:1"`.
    stage: str = ""
    #: What a program that exceeded the time limit waited for, such as `"open() of /tmp/pipe"`.
    awaited: str = ""
    seconds: float = 0.0

    @property
    def failure(self) -> str:
        """Return the program's first error verbatim, or an empty string if the program succeeded."""
        errors = [self.error, *(device.error for device in self.devices)]
        return next(filter(None, errors), "")

    def matches(self, pattern: str) -> bool:
        """Return whether the regular expression `pattern` occurs in the first error."""
        return re.search(pattern, self.failure) is not None

    def mentions(self, path: str) -> bool:
        """Return whether the first error contains `path`, or the program waited for a file in `path`."""
        return path in self.failure or path in self.awaited

    @property
    def progress(self) -> tuple[int, int]:
        """Return how many modules were imported and how many devices computed correct results."""
        computed = [device for device in self.devices if not device.error]
        return len(self.imported), len(computed)

    @property
    def is_successful(self) -> bool:
        """Return whether all imports succeeded and all counted devices computed correct results."""
        return not self.failure


def run(program: Program, change: Change = NO_CHANGE) -> Outcome:
    """Run a program in a child process with a change applied, and return the outcome.

    The program runs like a script in the working folder.
    """
    if not (change.reports_opened_files or change.hidden_files):
        return _run(program, change)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "opened")
        outcome = _run(program, change, folder)
        opened_files: tuple[str, ...] = ()
        if report.exists():
            text = report.read_text(encoding="utf-8", errors="surrogateescape")
            opened_files = tuple(text.splitlines())
    return replace(outcome, opened_files=opened_files)


def _run(program: Program, change: Change, folder: str = "") -> Outcome:
    """Run a program in a child process with a change applied, and return the outcome.

    `folder` is an empty folder for the report on opened files, and for the files that replace hidden files.
    """
    opened_files_report = f"{folder}/opened" if change.reports_opened_files else ""
    encoded_verdict = None
    if program.verdict is not None:
        encoded_verdict = isolation.encode(program.verdict)
    job = {
        "path": _sys_path_without_start_files(program, change),
        "start_lines": _lines_of_start_files(program, change),
        "without_script_folder": change.without_script_folder,
        "hidden_modules": tuple(change.hidden_modules),
        "hidden_files": tuple(change.hidden_files),
        "empty_folder": folder,
        "opened_files_report": opened_files_report,
        "modules": program.modules,
        "verdict": encoded_verdict,
        "other_verdicts": [isolation.encode(v) for v in program.other_verdicts],
        "counts_only": program.counts_only,
        "accel_path": [entry for entry in sys.path if isinstance(entry, str) and entry],
    }

    def start(
        command: Sequence[str], *, env: object, **options: Any
    ) -> subprocess.Popen[bytes]:
        del env  # The program's variables with the change are used instead.
        report_folder = command[-1]
        # Files that this process has opened itself are not inheritable.
        options["close_fds"] = change.without_inherited_files
        is_input_closed = sys.stdin is None
        if is_input_closed and not change.empty_input:
            options["stdin"] = None  # The program's standard input is closed too.
        return subprocess.Popen(
            _command(change, [report_folder, repr(job)]),
            env=change.apply_to_environment(program.environ),
            cwd=change.working_folder or None,
            **options,
        )

    start_time = time.monotonic()
    try:
        report = child.run(_unused_function, {}, program.timeout, start=start)
    except OSError as error:
        message = f"no process could be started for the program: {error}"
        return Outcome(error=message, start_failed=True)
    outcome = _read_outcome(program, report)
    return replace(outcome, seconds=time.monotonic() - start_time)


def _unused_function(_arguments: dict[str, Any], _stage: child.Stage) -> object:
    """Stand for the function that `child.run` requires; the started process runs a different program."""
    raise AssertionError


def _command(change: Change, arguments: list[str]) -> list[str]:
    """Return the command line that runs `program.py` with the arguments and the change."""
    source = Path(__file__).with_name("program.py").read_text(encoding="utf-8")
    options = []
    if change.without_user_site:
        options.append("-s")
    if change.without_start_files:
        options.append("-S")
    options.append("-Xfaulthandler")
    command = [sys.executable, *options, "-c", source, *arguments]
    return command_with_settings(command, change)


def command_with_settings(command: list[str], change: Change) -> list[str]:
    """Return a command line that runs `command` with the process settings of the change."""
    settings: dict[str, object] = {}
    for name in _PROCESS_SETTINGS:
        value = getattr(change, name)
        if value:
            # A frozenset is not a literal.
            settings[name] = tuple(value) if isinstance(value, frozenset) else value
    if not settings:
        return command
    source = Path(__file__).with_name("starter.py").read_text(encoding="utf-8")
    python = [sys.executable, "-I", "-S", "-c", source]
    return [*python, repr(settings), repr(command)]


def _sys_path_without_start_files(program: Program, change: Change) -> list[str]:
    """Return `sys.path` for a Python that is started with `-S`, which runs no start-up files.

    With `-S`, Python does not add the folders with packages to `sys.path`. Returns an empty list if Python
    is started without `-S`.
    """
    if not change.without_start_files:
        return []
    package_folders = list(program.package_folders)
    if change.without_user_site and program.user_site in package_folders:
        package_folders.remove(program.user_site)
    variables = change.apply_to_environment(program.environ)
    entries = variables.get("PYTHONPATH", "").split(os.pathsep)
    python_path = [entry for entry in entries if entry]
    standard = [entry for entry in sys.path if entry in _standard_library_folders()]
    return [*python_path, *standard, *package_folders]


def _standard_library_folders() -> set[str]:
    """Return the folders and the zip archive of Python's standard library."""
    library = Path(os.__file__).parent
    archive = f"python{sys.version_info[0]}{sys.version_info[1]}.zip"
    folders = (library, library / "lib-dynload", library.parent / archive)
    return {str(folder) for folder in folders}


def _lines_of_start_files(program: Program, change: Change) -> list[str]:
    """Return the lines of start-up files that the program runs itself, because Python does not.

    The list is empty if the change skips no start-up file, because Python then runs all of them.
    """
    if not change.without_start_files:
        return []
    lines: list[str] = []
    for file in program.start_files:
        if file.path not in change.without_start_files:
            lines += file.lines
    return lines


def _read_outcome(program: Program, report: child.ChildReport) -> Outcome:
    """Return the outcome of a run from the report of the program's child process."""
    answer = report.answer
    if answer is None:
        return _crashed_outcome(program, report)
    devices = tuple(Device(**row) for row in answer.get("devices", ()))
    return Outcome(
        imported=tuple(answer["imported"]),
        error=answer["error"],
        raised_message=answer.get("raised_message", ""),
        traceback_files=tuple(answer["traceback_files"]),
        module_files=dict(answer["module_files"]),
        count=answer.get("count"),
        devices=devices,
        printed=report.printed_last,
        stage=f"import {answer['module']}" if answer["error"] else "",
    )


def _crashed_outcome(program: Program, report: child.ChildReport) -> Outcome:
    """Return the outcome of a program that crashed or was stopped, from the last stage that it reported."""
    stage = report.stage  # The last step that the program has begun.
    import_stages = [f"import {module}" for module in program.modules]
    imported_count = len(import_stages)
    if stage in import_stages:
        imported_count = import_stages.index(stage)
    elif stage == "start":
        imported_count = 0
    return Outcome(
        imported=program.modules[:imported_count],
        error=f"its process {report.ending}{report.last_words}",
        traceback_files=tuple(_FILE_OF_CRASH.findall(report.stderr)),
        ending=report.ending,
        is_killed=report.returncode == -signal.SIGKILL,
        is_timed_out=report.timed_out,
        stage=stage,
        awaited=report.awaited,
    )
