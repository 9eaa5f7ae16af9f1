"""The packages and files in the traceback of a failed program.

A program may fail in a package that it only uses if it is installed, in a file that someone has changed, or
in a file that no installed distribution contains.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePath
from typing import NamedTuple

from accel_core.packages import distribution_of_module
from accel_tools.doctor.experiments.search import Experiment, fixed_step
from accel_tools.doctor.experiments.trial import Change, Outcome, Program

__all__ = ["describe_unusual_files", "hash_in_record", "hidden_module_experiments"]

#: The maximum number of modules that are hidden, one by one.
_MAX_HIDDEN = 4


def hidden_module_experiments(
    program: Program, outcome: Outcome
) -> Iterator[Experiment]:
    """Yield one experiment without each installed package in the traceback, as if it were not installed.

    A program that uses a package only if it is installed then works. The imported modules themselves are
    left out.
    """
    needed = {module.partition(".")[0] for module in program.modules}
    found: dict[str, str] = {}
    for file in outcome.traceback_files:
        path = _path_in_folders(file, program.package_folders)
        if path is not None:
            module = path.parts[0].partition(".")[0]
            found.setdefault(module, file)
    optional = [module for module in found if module not in needed]
    for module in optional[:_MAX_HIDDEN]:
        distribution, _version = distribution_of_module(module)
        step = f"if the program does not need {module}, remove {found[module]}"
        if distribution:
            step = f"repair {distribution}, or pip uninstall {distribution}: the program works without it"
        yield Experiment(
            change=Change(hidden_modules=frozenset({module})),
            name=f"the package {module}",
            step=fixed_step(step),
            may_be_needed=True,
        )


def _path_in_folders(file: str, folders: tuple[str, ...]) -> PurePath | None:
    """Return the path of a file relative to the innermost of the folders, or `None` if it is in no folder."""
    for folder in sorted(folders, key=len, reverse=True):
        if file.startswith(folder + os.sep):
            return PurePath(file).relative_to(folder)
    return None


class _Installed(NamedTuple):
    """A file that a distribution has installed."""

    #: The distribution and its version, such as `"numpy 2.3.1"`.
    distribution: str
    #: The hash in the distribution's RECORD, such as `"sha256=…"`, or an empty string.
    recorded_hash: str


def describe_unusual_files(program: Program, outcome: Outcome) -> list[str]:
    """Return a clause about each file in the traceback that is not as its distribution installed it.

    Files of modules that the error names count too. A file may have another content, or may belong to no
    installed distribution although it is in a folder with packages.
    """
    files = _files_of_failure(program, outcome)
    installed = _find_in_records(files)
    clauses = []
    for file in files:
        record = installed.get(file)
        if record is None:
            clauses.append(f"{file} belongs to no installed distribution")
        elif record.recorded_hash not in ("", hash_in_record(Path(file))):
            clauses.append(
                f"{file} does not have the content that {record.distribution} installed"
            )
    has_records = bool(installed)
    # Other installers than pip, such as apt, write no RECORD.
    return clauses if has_records else []


def _files_of_failure(program: Program, outcome: Outcome) -> list[str]:
    """Return the installed files in the traceback, and those of modules that the error names."""
    files = list(outcome.traceback_files)
    words = set(re.findall(r"\w+", outcome.failure))
    for module, file in outcome.module_files.items():
        if module in words:
            files.append(file)
    found = []
    for file in dict.fromkeys(files):
        if _path_in_folders(file, program.package_folders) is not None:
            found.append(file)
    return found


def _find_in_records(files: list[str]) -> dict[str, _Installed]:
    """Return those of the files that a distribution has installed."""
    found: dict[str, _Installed] = {}
    if not files:
        return found
    for distribution in metadata.distributions():
        try:
            record = distribution.read_text("RECORD") or ""
        except (OSError, ValueError):  # It is unreadable, or not UTF-8.
            continue
        for row in csv.reader(record.splitlines()):
            if len(row) != 3:  # The line is damaged.
                continue
            file = os.path.normpath(str(distribution.locate_file(row[0])))
            if file in files:
                name = f"{distribution.metadata['Name']} {distribution.version}"
                found[file] = _Installed(name, row[1])
    return found


def hash_in_record(file: Path) -> str:
    """Return the SHA-256 digest of a file in the form of RECORD, or an empty string if it is unreadable."""
    try:
        digest = hashlib.sha256(file.read_bytes()).digest()
    except OSError:
        return ""
    encoded = base64.urlsafe_b64encode(digest).decode("ascii")
    return f"sha256={encoded.rstrip('=')}"
