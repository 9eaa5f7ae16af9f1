"""The options that commands share, and a command's output: one document on stdout, all else on stderr.

Plugins and vendors' packages print, some from C, some at exit, and a script that reads our JSON must see
none of it. So a command keeps a copy of stdout for itself, and descriptor 1 means stderr from then on.
"""

import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TextIO

import click
from click.shell_completion import CompletionItem

from accel_core.cli import page
from accel_core.detection.discovery import installed_names
from accel_core.errors import AccelError, BackendNotFoundError, SettingError
from accel_core.sandbox import child
from accel_core.settings import ACCEL_PROBE_TIMEOUT, Settings, parse_pin, read
from accel_core.text import did_you_mean, escape_control_chars

#: Narrower than this, a table is only a puzzle: let the terminal wrap instead.
_NARROWEST = 40


class _Misuse(click.ClickException):
    exit_code = 2


class Output:
    """The command's own stdout; call `write` once, with the whole answer."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self.is_terminal = stream is not None and stream.isatty()
        # Some terminals (a bare pty, a serial line) say 0 columns, which means that they do not know.
        columns = shutil.get_terminal_size().columns or 80
        limited = self.is_terminal or os.environ.get("COLUMNS", "").isdecimal()
        #: Columns to fill; `None` for no limit, as lines in a pipe are for `grep`.
        self.width = max(_NARROWEST, columns) if limited else None
        self._descriptor = _keep(stream)

    @property
    def in_colour(self) -> bool:
        """Whether to write colours: `NO_COLOR` is unset, and stdout is a terminal or `FORCE_COLOR` is set."""
        capable = self.is_terminal and os.environ.get("TERM") not in ("dumb", "unknown")
        return (capable or bool(os.environ.get("FORCE_COLOR"))) and not os.environ.get("NO_COLOR")

    def can_write(self, text: str) -> bool:
        """Whether stdout's encoding has all these characters."""
        return text.encode(self._encoding, "ignore").decode(self._encoding) == text

    def write(self, text: str) -> None:
        """Write `text` and a line end; characters that the encoding lacks become escapes.

        If the reader has closed the pipe, the command ends without a message; if the disk is full, with one
        line.
        """
        data = f"{text}\n".encode(self._encoding, "backslashreplace")
        try:
            if self._descriptor is not None:
                # Closed at once: a reader that has gone away is met here, not in an exit handler.
                with open(self._descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                    file.write(data)
            elif self._stream is not None:
                self._stream.write(data.decode(self._encoding))
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            raise click.ClickException(f"stdout cannot be written: {error.strerror}") from None

    def write_page(self, parts: Iterable[page.Part]) -> None:
        """Write one page for people."""
        self.write(page.to_text(parts, self.width, in_colour=self.in_colour))

    def write_json(self, document: Mapping[str, object]) -> None:
        """Write one JSON document, with the version of its schema, in ASCII, which every encoding
        can hold.
        """
        # Raised when a key changes its meaning or goes away.
        self.write(json.dumps({"schema": 1, **document}, indent=2))


def _keep(stream: TextIO | None) -> int | None:
    """A copy of descriptor 1, which means stderr from now on; `None` where `stream` is not that file."""
    with contextlib.suppress(OSError, ValueError):  # a buffer, as in tests
        if stream is not None and stream.fileno() == 1:
            stream.flush()
            copy = os.dup(1)
            with contextlib.suppress(OSError):  # stderr may be closed
                os.dup2(2, 1)
            return copy
    return None


@contextlib.contextmanager
def _waiting(terminal: TextIO | None) -> Iterator[None]:
    """Show on a terminal what is waited for, and for how long: `importing torch, 12 s ...`."""
    shows = terminal and terminal.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    drawn = False

    def draw(stage: str, seconds: float) -> None:
        nonlocal drawn
        if drawn or seconds >= 2:  # of less nobody has to be told
            with contextlib.suppress(OSError, ValueError):  # it has gone away
                line = f"{escape_control_chars(stage)[:_NARROWEST]}, {seconds:.0f} s ..." if stage else ""
                click.echo(f"\r\x1b[K{line}", terminal, nl=False)
            drawn = bool(stage)

    child.watching = draw if shows else None
    try:
        yield
    finally:
        child.watching = None


@contextlib.contextmanager
def answering(*, as_json: bool) -> Iterator[Output]:
    """Yield the `Output` for one answer, and turn an `AccelError` into a message and an exit status.

    The status is 2 for an invalid setting or an unknown name, else 1. With `as_json` the error is also
    written as a JSON document. Any other exception is a bug of ours and keeps its traceback.
    """
    output = Output(sys.stdout)
    # For the whole process, on purpose: it is the command's own, and what a plugin's thread prints must not
    # reach stdout either. Descriptor 1 is not enough where sys.stdout is another stream.
    with contextlib.redirect_stdout(sys.stderr), _waiting(sys.stderr):
        try:
            yield output
        except AccelError as error:
            if as_json:
                output.write_json({"error": {"type": type(error).__name__, "message": str(error)}})
            raise (_Misuse if status_of(error) == 2 else click.ClickException)(str(error)) from error


def status_of(error: AccelError | None) -> int:
    """Return the exit status for an error: 2 for misuse or an unknown name, else 1."""
    return 2 if isinstance(error, (SettingError, BackendNotFoundError)) else 1


# --- Arguments and options ----------------------------------------------------------------------------


def read_settings(timeout: float | None = None) -> Settings:
    """Return the settings in the environment, with the command line's timeout; raises `SettingError`."""
    settings = read()
    return settings if timeout is None else replace(settings, probe_timeout=timeout)


class OneOf(click.ParamType):  # type: ignore[type-arg]
    """A click type that accepts the names a function returns; the error for any other value suggests one."""

    def __init__(self, kind: str, names: Callable[[], Iterable[str]]) -> None:
        self.name, self._names = kind, names

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it is one of the names."""
        names = list(self._names())
        if value not in names:
            meant = did_you_mean(value, names) or f" Choose from {', '.join(names)}."
            self.fail(f"there is no {self.name} {value!r}.{meant}", param, ctx)
        return value

    def shell_complete(self, ctx: Any, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with the typed text."""
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete.lower())]


class _Parsed(OneOf):
    """A value that the settings parse; a complaint of theirs is bad usage."""

    def __init__(self, parse: Callable[[str], Any], names: Callable[[], Iterable[str]] = list) -> None:
        super().__init__("value", names)
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"{value!r} is not valid, expected {error}.", param, ctx)


#: The names that are installed, from metadata: no plugin is imported for a press of the tab key.
_BACKEND = _Parsed(parse_pin, installed_names)

#: `--json`.
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

#: `[NAME]`, written as `DS_ACCELERATOR` writes one; the command gets a `Pin` or `None`.
backend_name = click.argument("name", required=False, metavar="[NAME]", type=_BACKEND)

#: `[NAME]...`; the command gets a tuple of `Pin`s, empty where none is given.
backend_names = click.argument("names", nargs=-1, metavar="[NAME]...", type=_BACKEND)

_HOW_LONG = "Stop a probe after SECONDS [default: ACCEL_PROBE_TIMEOUT, or 60]."
#: `--timeout`; the command gets a number of seconds or `None`.
probe_timeout = click.option(
    "--timeout", metavar="SECONDS", type=_Parsed(ACCEL_PROBE_TIMEOUT.parse), help=_HOW_LONG
)
