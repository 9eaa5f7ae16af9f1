"""A command whose processes are recorded, and the reports of it."""

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
from accel_simulated.asked import VARIABLE as SIMULATED
from accel_simulated.detector import VARIABLE, formats, gather, strings

__all__ = ["check", "run"]

_SHELLS = 128  # what shells add to the number of a signal


def check(files: Sequence[str]) -> None:
    """Raise `SettingError` for a report that could not be written: before anything is run."""
    for file in files:
        if formats.format_of(file) is None:
            endings = ", ".join(formats.FORMATS)
            raise SettingError(
                f"--report {file!r}: its ending says how it is written, and is none of {endings}. "
                f"Write --report {Path(file).stem or 'vendors'}.md."
            )
        there = Path(file).exists()
        try:
            with Path(file).open("ab"):
                pass
            if not there:
                Path(file).unlink()
        except OSError as error:
            raise SettingError(
                f"--report {file!r}: it cannot be written: {error.strerror or error}. Give a file in a "
                "folder that is there and that you may write to."
            ) from error


def run(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    files: Sequence[str],
    given: Sequence[str],
) -> int:
    """Run the program and its arguments, write the reports, and give the command's exit status.

    `given` is the command as a person wrote it. A command that a signal ended has the status that shells
    give it, 128 and the signal's number. What keeps a report from being written is said, and makes a good
    status 1.
    Raises `BuildError` where device strings cannot be watched.
    """
    library = strings.build()
    root = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="accel-simulate-"))
    try:
        (folder / strings.LIBRARY).symlink_to(library)
        status = _status(arguments, {**environ, VARIABLE: str(folder)})
        report = gather.gather(folder, root, list(given), environ[SIMULATED], status)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for file in files:
        write = formats.format_of(file)
        assert write is not None, "check() was not called"
        try:
            (root / file).write_text(write(report), encoding="utf-8")
        except OSError as error:
            problem = f"Error: --report {file!r} could not be written: {error}"
            print(problem, file=sys.stderr)  # noqa: T201
            status = status or 1
    found = len(report.assumptions)
    places = f"{found} place{'s' * (found != 1)}, {len(report.asks)} that only ask"
    if report.failure:
        places = f"{report.failure}: {places}"
    print(f"accel simulate: {places}: {', '.join(files)}", file=sys.stderr)  # noqa: T201
    return status


def _status(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    with subprocess.Popen(arguments, env=environ) as command, _handing_on(command):
        status = command.wait()
    return status if status >= 0 else _SHELLS - status


@contextlib.contextmanager
def _handing_on(command: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass signals that would end this process to the command, whose report is still to be written."""

    def hand_on(number: int, _: FrameType | None) -> None:
        if number != signal.SIGINT:  # that one a terminal sends to both
            command.send_signal(number)

    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, hand_on) for number in caught]
    try:
        yield
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)
