"""A visit as one file to send: a zip with the report, the installed packages and the log, all redacted."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from accel_core.log import logged_by
from accel_core.text import one_line
from accel_tools.doctor.markdown import markdown
from accel_tools.doctor.outgoing import Outgoing, distributions
from accel_tools.doctor.redact import Redactor
from accel_tools.setup import machines
from accel_tools.setup.recipes import known_files

__all__ = ["bundle", "recorded", "write"]

#: Lines of a log that are kept; a visit writes some hundred.
_MOST_LINES = 20_000


def bundle(outgoing: Outgoing, log_lines: list[str], redactor: Redactor) -> bytes:
    """Return the zip file: `report.json`, `report.md`, `distributions.txt`, `log.txt`, `machine.json`.

    The same visit gives the same bytes: the file holds no time of day and no owner.
    """
    files = {
        "report.json": json.dumps({"schema": 1, **outgoing.to_dict()}, indent=2),
        "report.md": markdown(outgoing),
        "distributions.txt": "\n".join(map(redactor.text, distributions())),
        "log.txt": "\n".join(one_line(redactor.text(line)) for line in log_lines),
        machines.FILE: json.dumps(
            machines.recorded(machines.here(), known_files()), indent=1
        ),
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)  # dated 1980, whatever the clock says
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, text.encode("utf-8", "backslashreplace"))
    return made.getvalue()


def write(path: str, data: bytes, *, force: bool) -> None:
    """Write a file that only its owner can read, either completely or not at all.

    Raises `FileExistsError` if the path exists and `force` is not given, and `OSError` if it cannot be
    written; then nothing is left behind.
    """
    target = Path(path)
    if not force and os.path.lexists(target):
        raise FileExistsError(17, "it exists already", path)
    number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    made = Path(name)
    try:
        with open(number, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(data)
            file.flush()
            os.fsync(number)
        if force:
            made.replace(target)
        else:
            _link(made, target)
    finally:
        made.unlink(missing_ok=True)


def _link(made: Path, target: Path) -> None:
    """Give the file its name, which nobody has: a file that came meanwhile stays."""
    try:
        target.hardlink_to(made)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        made.replace(target)


@contextlib.contextmanager
def recorded() -> Iterator[list[str]]:
    """Return a context manager that records the log lines of this process and its children."""
    lines: list[str] = []
    with logged_by(_Keeper(lines)):
        yield lines


class _Keeper(logging.Handler):
    """Keeps the first lines of the log."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, as a line."""
        if len(self._lines) < _MOST_LINES:
            self._lines.append(self.format(record))
