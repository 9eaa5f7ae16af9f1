"""Experiments without the files that a failing program opens, such as configurations, caches and sockets.

The program itself reports the files that its Python code opens. Files of installed packages and of the
system's own file systems are left out.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence

from accel_core import hardware
from accel_tools.doctor.experiments.search import Experiment
from accel_tools.doctor.experiments.trial import Change, Outcome, Program

__all__ = ["describe_locks", "opened_file_experiments"]

#: The maximum number of files with which experiments run: those that were opened last.
_MAX_FILES = 16
#: Beginnings of paths that are no files of the user or of the machine's administrator.
_SYSTEM_PATHS = ("/proc/", "/sys/", "/dev/")


def opened_file_experiments(program: Program, outcome: Outcome) -> Iterator[Experiment]:
    """Yield one experiment without each file and folder that a program opened, the last one first."""
    paths = _paths_of_interest(program, outcome)
    for path, name in list(paths.items())[:_MAX_FILES]:
        kind = "folder" if os.path.isdir(path) else "file"  # noqa: PTH112
        yield Experiment(
            change=Change(hidden_files=frozenset({path, name})),
            name=f"the {kind} {path}",
            step=functools.partial(_step, path),
            is_likely=functools.partial(_is_in_failure, path),
            # A program may need the file.
            may_be_needed=True,
            is_related=True,
        )


def _paths_of_interest(program: Program, outcome: Outcome) -> dict[str, str]:
    """Return the absolute paths of the opened files, the last one first, with the names that were opened."""
    paths: dict[str, str] = {}
    for name in reversed(outcome.opened_files):
        path = os.path.normpath(os.path.abspath(name))  # noqa: PTH100
        if _is_of_interest(path, program):
            paths.setdefault(path, name)
    return paths


def describe_locks(program: Program, outcome: Outcome) -> str:
    """Return a clause that names the processes with a lock on a file that a program opened.

    The string is empty if there is no such process, or if this system does not list its locks.
    """
    processes_by_file: dict[str, int] = {}
    for line in hardware.read_text("/proc/locks").splitlines():
        # For example: "1: POSIX  ADVISORY  WRITE 812 fe:01:4711 0 EOF" (proc_locks(5)).
        fields = line.split()
        if len(fields) >= 6 and fields[4].isdigit():
            processes_by_file[fields[5]] = int(fields[4])
    clauses = []
    for path in _paths_of_interest(program, outcome):
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            continue
        major, minor = os.major(status.st_dev), os.minor(status.st_dev)
        process = processes_by_file.get(f"{major:02x}:{minor:02x}:{status.st_ino}")
        if process not in (None, os.getpid()):
            clauses.append(f"process {process} has a lock on {path}")
    return ", ".join(clauses)


def _is_of_interest(path: str, program: Program) -> bool:
    """Return whether `path` exists, and is neither a part of an installed package nor of the system."""
    if path.startswith(_SYSTEM_PATHS) or not os.path.lexists(path):
        return False
    # The examined program writes its results to the folder for temporary files.
    if f"{tempfile.gettempdir()}/".startswith(f"{path.rstrip('/')}/"):
        return False
    # Python lists the folders in which it searches for modules.
    searched = program.environ.get("PYTHONPATH", "").split(os.pathsep)
    if path in (os.path.abspath(os.curdir), *searched):  # noqa: PTH100
        return False
    python_folders = (sys.prefix, sys.base_prefix, os.path.dirname(os.__file__))  # noqa: PTH120
    folders: Sequence[str] = (*program.package_folders, *python_folders, *sys.path)
    for folder in folders:
        inside = (folder + os.sep, os.path.realpath(folder) + os.sep)
        # An empty string in sys.path stands for the working folder.
        if folder and (path == folder or path.startswith(inside)):
            return False
    return True


def _is_in_failure(path: str, outcome: Outcome) -> bool:
    return outcome.mentions(path)


def _step(path: str, _outcome: Outcome) -> str:
    """Return the next step if a program works without the file or folder `path`."""
    folder = os.path.dirname(path)  # noqa: PTH120
    as_root = "" if os.access(folder, os.W_OK) else "as root, "
    return f"correct {path}, or {as_root}rename it: the program works without it"
