"""Write a command's output, and define the options that several commands share.

A command writes one document to stdout, and everything else to stderr. Plugins and
vendors' packages also print, some of them from C or at exit, but a script that reads
the JSON document must not receive any of that output. A command therefore keeps a copy
of stdout, and redirects file descriptor 1 to stderr.
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
from accel_core.errors import AccelError, BackendNotFoundError, SettingError
from accel_core.plugins import installed_names
from accel_core.sandbox import child
from accel_core.settings import ACCEL_PROBE_TIMEOUT, Settings, parse_pin, read
from accel_core.text import did_you_mean, escape_control_chars

#: The smallest width of a page in columns. On a narrower terminal, the terminal wraps the
#: lines better than a table does.
_MIN_WIDTH = 40
#: The number of seconds after which a wait is shown.
_SHOW_WAIT_AFTER = 2


class _Misuse(click.ClickException):
    """The error of a command that was called with an invalid setting or name."""

    exit_code = 2


class Output:
    """The stdout of a command. Call one of the methods `write...` once, with the whole
    output.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self.is_terminal = stream is not None and stream.isatty()
        #: The width of a page in columns, or `None` for no limit, so that `grep` finds
        #: whole lines.
        self.width: int | None = None
        if self.is_terminal or os.environ.get("COLUMNS", "").isdecimal():
            # The width is 0 if the terminal does not report it, as on a serial line.
            columns = shutil.get_terminal_size().columns or 80
            self.width = max(_MIN_WIDTH, columns)
        self._descriptor = _take_over_stdout(stream)

    @property
    def in_colour(self) -> bool:
        """Whether to write colors: `NO_COLOR` is unset, and stdout is a terminal or
        `FORCE_COLOR` is set.
        """
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return True
        return self.is_terminal and _has_escape_codes()

    def can_write(self, text: str) -> bool:
        """Return whether stdout's encoding can represent all characters of `text`."""
        # "ignore" leaves out the characters that the encoding lacks.
        representable = text.encode(self._encoding, "ignore").decode(self._encoding)
        return representable == text

    def write(self, text: str) -> None:
        """Write `text` and a newline to stdout. Characters that stdout's encoding lacks
        are escaped.

        If the reader has closed the pipe, the command ends without a message. If the
        disk is full, the command ends with a one-line message.
        """
        data = f"{text}\n".encode(self._encoding, "backslashreplace")
        try:
            self._write_and_close(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # click ends the command without a message.
            message = f"Cannot write to stdout: {error.strerror}"
            raise click.ClickException(message) from None

    def _write_and_close(self, data: bytes) -> None:
        if self._descriptor is not None:
            # Closing the file writes the buffered data. If the pipe is closed, the error
            # is therefore raised here and not in an exit handler.
            with os.fdopen(self._descriptor, "wb") as file:
                file.write(data)
        elif self._stream is not None:
            self._stream.write(data.decode(self._encoding))

    def write_page(self, parts: Iterable[page.Part]) -> None:
        """Write one human-readable page to stdout."""
        self.write(page.to_text(parts, self.width, in_colour=self.in_colour))

    def write_json(self, document: Mapping[str, object]) -> None:
        """Write one JSON document, in ASCII and with its schema version, to stdout.

        The schema version increases when a key is removed or changes its meaning.
        """
        self.write(json.dumps({"schema": 1, **document}, indent=2))


def _take_over_stdout(stream: TextIO | None) -> int | None:
    """Return a copy of file descriptor 1, and redirect descriptor 1 to stderr.

    Return `None` if `stream` does not write to descriptor 1, as is the case for a
    buffer in a test.
    """
    stdout_descriptor, stderr_descriptor = 1, 2
    try:
        if stream is None or stream.fileno() != stdout_descriptor:
            return None
        stream.flush()
        copy = os.dup(stdout_descriptor)
    except (OSError, ValueError):
        return None
    with contextlib.suppress(OSError):  # stderr may be closed
        os.dup2(stderr_descriptor, stdout_descriptor)
    return copy


def _has_escape_codes() -> bool:
    """Return whether the terminal supports escape codes."""
    return os.environ.get("TERM") not in ("dumb", "unknown")


@contextlib.contextmanager
def _showing_progress(terminal: TextIO | None) -> Iterator[None]:
    """Show the current step on a terminal while the command waits, as in `importing
    torch, 12 s ...`.
    """
    clear_line = "\r\x1b[K"
    is_line_shown = False

    def show(stage: str, seconds: float) -> None:
        """Replace the line on the terminal. An empty stage removes the line."""
        nonlocal is_line_shown
        if not is_line_shown and seconds < _SHOW_WAIT_AFTER:
            return
        line = ""
        if stage:
            line = f"{escape_control_chars(stage)[:_MIN_WIDTH]}, {seconds:.0f} s ..."
        with contextlib.suppress(OSError, ValueError):  # the terminal may be closed
            click.echo(f"{clear_line}{line}", terminal, nl=False)
        is_line_shown = bool(stage)

    if terminal is not None and terminal.isatty() and _has_escape_codes():
        child.supervision.progress = show
    else:
        child.supervision.progress = None
    try:
        yield
    finally:
        child.supervision.progress = None


@contextlib.contextmanager
def answering(*, as_json: bool) -> Iterator[Output]:
    """Yield a command's `Output`, and report an `AccelError` of the block as a message.

    An `AccelError` ends the command with exit status 2 for an invalid setting or an
    unknown name, and with 1 otherwise. With `as_json`, the error is also written as a
    JSON document. An exception of another class is a bug and keeps its traceback.
    """
    output = Output(sys.stdout)
    # This applies to the whole process, because output of a plugin's thread must not
    # reach stdout either. Descriptor 1 is not enough if sys.stdout is another stream.
    with contextlib.redirect_stdout(sys.stderr), _showing_progress(sys.stderr):
        try:
            yield output
        except AccelError as error:
            message = str(error)
            if as_json:
                error_type = type(error).__name__
                output.write_json({"error": {"type": error_type, "message": message}})
            if status_of(error) == _Misuse.exit_code:
                raise _Misuse(message) from error
            raise click.ClickException(message) from error


def status_of(error: AccelError | None) -> int:
    """Return a command's exit status for an error: 2 for an invalid setting or an
    unknown name, 1 for any other error.
    """
    if isinstance(error, (SettingError, BackendNotFoundError)):
        return _Misuse.exit_code
    return click.ClickException.exit_code


# --- Arguments and options ----------------------------------------------------------


def read_settings(timeout: float | None = None) -> Settings:
    """Read the settings from the environment. If `timeout` was given on the command
    line, it replaces the probe timeout.

    Raises `SettingError` for an invalid setting.
    """
    settings = read()
    if timeout is None:
        return settings
    return replace(settings, probe_timeout=timeout)


class OneOf(click.ParamType):  # type: ignore[type-arg]
    """A click type that accepts only the names that the function `names` returns.

    The error for any other value suggests a similar name, or lists all names. The error
    calls the value `item_type`, such as `"command"`.
    """

    def __init__(self, item_type: str, names: Callable[[], Iterable[str]]) -> None:
        self.name = item_type
        self._names = names

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the value if it is one of the names, or fail with a usage error."""
        names = list(self._names())
        if value not in names:
            advice = did_you_mean(value, names)
            if not advice:
                advice = f" Choose from {', '.join(names)}."
            self.fail(f"{value!r} is not a known {self.name}.{advice}", param, ctx)
        return value

    def shell_complete(
        self, ctx: Any, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin with `incomplete`."""
        items = []
        for name in self._names():
            if name.startswith(incomplete.lower()):
                items.append(CompletionItem(name))
        return items


class _Parsed(OneOf):
    """A click type for values that one of the settings' parsers accepts. An invalid
    value is a usage error.
    """

    def __init__(
        self, parse: Callable[[str], Any], names: Callable[[], Iterable[str]] = list
    ) -> None:
        super().__init__("value", names)
        self._parse = parse

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the parsed value, or fail with a usage error if it is invalid."""
        if not isinstance(value, str):  # click may pass a value that is parsed already
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"{value!r} is not valid, expected {error}.", param, ctx)


#: Accepts a pin. Completion suggests the installed names from metadata, without
#: importing a plugin.
_BACKEND = _Parsed(parse_pin, installed_names)

#: The option `--json`.
as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document."
)

#: The argument `[NAME]`, in the form of `DS_ACCELERATOR`. The command gets a `Pin` or
#: `None`.
backend_name = click.argument("name", required=False, metavar="[NAME]", type=_BACKEND)

#: The argument `[NAME]...`. The command gets a tuple of `Pin` objects, which is empty
#: without a name.
backend_names = click.argument("names", nargs=-1, metavar="[NAME]...", type=_BACKEND)

#: The option `--timeout`. The command gets a number of seconds or `None`.
probe_timeout = click.option(
    "--timeout",
    metavar="SECONDS",
    type=_Parsed(ACCEL_PROBE_TIMEOUT.parse),
    help="Stop a probe after SECONDS [default: ACCEL_PROBE_TIMEOUT, or 60].",
)
