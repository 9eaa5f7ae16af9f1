"""A visit as one file to send: a zip with the report, what is installed and the log, all of it redacted."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from accel_core._support import log
from accel_core._text import clean
from accel_core.doctor.markdown import markdown
from accel_core.doctor.outgoing import Outgoing, distributions
from accel_core.doctor.redact import Redactor

__all__ = ["bundle", "recorded", "write"]

#: Lines of a log that are kept; a visit writes some hundred.
_MOST_LINES = 20_000


def bundle(outgoing: Outgoing, log_lines: list[str], redactor: Redactor) -> bytes:
    """The zip file: `report.json`, `report.md`, `distributions.txt` and `log.txt`.

    The same visit gives the same bytes: no time of day and no owner is in it.
    """
    files = {
        "report.json": json.dumps({"schema": 1, **outgoing.to_dict()}, indent=2),
        "report.md": markdown(outgoing),
        "distributions.txt": "\n".join(map(redactor.text, distributions())),
        "log.txt": "\n".join(clean(redactor.text(line)) for line in log_lines),
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)  # dated 1980, whatever the clock says
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, text.encode("utf-8", "backslashreplace"))
    return made.getvalue()


def write(path: str, data: bytes, *, force: bool) -> None:
    """Write a file as a whole or not at all; readable by its owner only.

    Raises `FileExistsError` where something is there already and `force` is not given, and `OSError` where
    it cannot be written: nothing is left behind then.
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
    """The lines of `ACCEL_LOG`, of this process and its children; they do not reach stderr unless asked for.

    For a command, whose process is its own: the variable and `sys.stderr` are another's meanwhile.
    """
    lines: list[str] = []
    was, shown = os.environ.get(log.VARIABLE), log.is_on()
    original = sys.stderr
    os.environ[log.VARIABLE] = "1"
    sys.stderr = _Recorder(original, lines, shown=shown)
    try:
        yield lines
    finally:
        sys.stderr = original
        if was is None:
            del os.environ[log.VARIABLE]
        else:
            os.environ[log.VARIABLE] = was


class _Recorder(io.TextIOBase):
    """A stderr that keeps the lines of the log."""

    def __init__(self, original: TextIO, lines: list[str], *, shown: bool) -> None:
        self._original = original
        self._lines = lines
        self._shown = shown

    def write(self, text: str) -> int:
        if not text.startswith(log.MARK):
            return self._original.write(text)
        if len(self._lines) < _MOST_LINES:
            self._lines.append(text.rstrip("\n"))
        return self._original.write(text) if self._shown else len(text)

    def flush(self) -> None:
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self._original.flush()

    def fileno(self) -> int:
        return self._original.fileno()

    def isatty(self) -> bool:
        return self._original.isatty()
