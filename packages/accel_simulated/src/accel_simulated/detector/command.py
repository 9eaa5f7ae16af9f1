"""Run a command whose processes are recorded, and write the reports."""

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
from accel_simulated.detector import VARIABLE, device_strings, formats
from accel_simulated.detector.merge import Report, merge
from accel_simulated.request import VARIABLE as SIMULATED

__all__ = ["check", "run"]

#: Shells add this number to the number of the signal that terminated a command.
_SIGNAL_STATUS = 128


def check(files: Sequence[str]) -> None:
    """Raise `SettingError` if a report file has an unknown suffix or cannot be created; run nothing."""
    for file in files:
        if formats.format_of(file) is None:
            endings = ", ".join(formats.FORMATS)
            raise SettingError(
                f"--report {file!r}: the file's suffix selects the format, and must be one of {endings}. "
                f"Write --report {Path(file).stem or 'vendors'}.md."
            )
        try:
            _check_writable(Path(file))
        except OSError as error:
            raise SettingError(
                f"--report {file!r}: it cannot be written: {error.strerror or error}. Give a file in a "
                "folder that exists and that you may write to."
            ) from error


def _check_writable(file: Path) -> None:
    """Raise `OSError` if a file cannot be written; leave the file unchanged."""
    exists = file.exists()
    with file.open("ab"):
        pass
    if not exists:
        file.unlink()


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    files: Sequence[str],
    given: Sequence[str],
) -> int:
    """Run a program with its arguments, write the reports, and return the command's exit status.

    `given` is the command as the user typed it. If a signal terminates the command, the status is 128 plus
    the signal's number, as in a shell. If a report cannot be written, prints an error, and a status of 0
    becomes 1. Raises `BuildError` if the detector of device strings cannot be built.
    """
    library = device_strings.build()
    root = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="accel-simulate-"))
    try:
        (folder / device_strings.LIBRARY).symlink_to(library)
        status = _run_program(arguments, {**environ, VARIABLE: str(folder)})
        report = merge(folder, root, list(given), environ[SIMULATED], status)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    failures = [file for file in files if not _write(report, file, root)]
    print(f"accel simulate: {_summary(report, files)}", file=sys.stderr)  # noqa: T201
    return status or (1 if failures else 0)


def _write(report: Report, file: str, root: Path) -> bool:
    """Write a report to a file and return True; if writing fails, print the reason and return False."""
    write = formats.format_of(file)
    assert write is not None, "check() was not called"
    try:
        (root / file).write_text(write(report), encoding="utf-8")
    except OSError as error:
        problem = f"Error: --report {file!r} could not be written: {error}"
        print(problem, file=sys.stderr)  # noqa: T201
        return False
    return True


def _summary(report: Report, files: Sequence[str]) -> str:
    """Return one line with the outcome of the run and the number of recorded places."""
    number = len(report.assumptions)
    places = f"{number} place{'s' * (number != 1)}, {len(report.asks)} that only check for a device"
    return f"{report.outcome} {places}: {', '.join(files)}"


def _run_program(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a program to its end; return its exit status as a shell reports it."""
    with (
        subprocess.Popen(arguments, env=environ) as program,
        _signals_forwarded(program),
    ):
        status = program.wait()
    return status if status >= 0 else _SIGNAL_STATUS - status


@contextlib.contextmanager
def _signals_forwarded(program: subprocess.Popen[bytes]) -> Iterator[None]:
    """Forward terminating signals to the program, because its report must still be written."""

    def forward(number: int, _: FrameType | None) -> None:
        if number != signal.SIGINT:  # a terminal sends this signal to the program too
            program.send_signal(number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = [signal.signal(number, forward) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
