"""Run a command, record vendor-specific code in its processes, and write the reports."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from accel_core import SettingError
from accel_simulated.detector import RECORD_FOLDER_VARIABLE, device_strings, formats
from accel_simulated.detector.merge import Report, merge
from accel_simulated.request import VARIABLE as SIMULATED

__all__ = ["check_report_files", "run_and_report"]

#: The number that a shell adds to a signal's number to get the exit status of a command that the signal
#: killed.
_SIGNAL_STATUS_BASE = 128


def check_report_files(files: Sequence[str]) -> None:
    """Raise `SettingError` if a report file has an unknown suffix or cannot be written."""
    for file in files:
        if formats.find_formatter(file) is None:
            suffixes = ", ".join(formats.FORMATTERS)
            raise SettingError(
                f"--report {file!r}: the file's suffix selects the format, and must be one of {suffixes}. "
                f"Write --report {Path(file).stem or 'vendors'}.md."
            )
        try:
            _check_writable(Path(file))
        except OSError as error:
            raise SettingError(
                f"--report {file!r}: the file cannot be written: {error.strerror or error}. Choose a file in "
                "an existing folder in which you can write."
            ) from error


def _check_writable(file: Path) -> None:
    """Raise `OSError` if a file cannot be written, without changing the file or leaving a new one."""
    existed = file.exists()
    with file.open("ab"):
        pass
    if not existed:
        file.unlink()


def run_and_report(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    files: Sequence[str],
    command_line: Sequence[str],
) -> int:
    """Run a program with its arguments, write the report into each of `files`, and return the exit status.

    `command_line` is the command as the user typed it. If a signal terminates the program, the status is 128
    plus the signal's number, as in a shell. If a report cannot be written, an error is printed and the status
    is nonzero. Raises `BuildError` if the detector of device strings cannot be built.
    """
    library = device_strings.build()
    start_folder = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="accel-simulate-"))
    try:
        (folder / device_strings.LIBRARY).symlink_to(library)
        status = _run_program(
            arguments, {**environ, RECORD_FOLDER_VARIABLE: str(folder)}
        )
        report = merge(
            folder, start_folder, list(command_line), environ[SIMULATED], status
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    all_written = True
    for file in files:
        if not _write_report(report, file, start_folder):
            all_written = False
    print(f"accel simulate: {_summarize(report, files)}", file=sys.stderr)  # noqa: T201
    if status == 0 and not all_written:
        return 1
    return status


def _write_report(report: Report, file: str, start_folder: Path) -> bool:
    """Write the report into a file in the format that the file's suffix selects.

    Returns whether the file was written. If not, the reason is printed. A relative path is resolved against
    `start_folder`.
    """
    format_report = formats.find_formatter(file)
    assert format_report is not None, "check_report_files() was not called"
    try:
        (start_folder / file).write_text(format_report(report), encoding="utf-8")
    except OSError as error:
        problem = f"Error: --report {file!r} could not be written: {error}"
        print(problem, file=sys.stderr)  # noqa: T201
        return False
    return True


def _summarize(report: Report, files: Sequence[str]) -> str:
    """Return a one-line summary with the run's outcome, the number of recorded places, and the files."""
    places = formats.format_count(len(report.places_to_change), "place")
    check_count = len(report.device_checks)
    return (
        f"{report.outcome} {places} to change, {check_count} that only check for a device, "
        f"{len(report.source_places)} found only in the source files. Written: {', '.join(files)}"
    )


def _run_program(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program to completion, and return its exit status as a shell would report it."""
    with (
        subprocess.Popen(arguments, env=environ) as program,
        _forward_signals(program),
    ):
        status = program.wait()
    if status < 0:  # subprocess returns the negative number of the signal
        signal_number = -status
        return _SIGNAL_STATUS_BASE + signal_number
    return status


@contextlib.contextmanager
def _forward_signals(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Forward termination signals from this process to the program during the `with` block.

    This process keeps running, because it must still write the reports.
    """

    def forward(number: int, _: FrameType | None) -> None:
        # A terminal sends SIGINT to the program, too.
        if number != signal.SIGINT:
            program.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous_handlers = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
