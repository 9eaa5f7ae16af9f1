"""A progress line on stderr, if that is a terminal: the current work, and how much is done."""

from __future__ import annotations

import os
import sys
from types import TracebackType

__all__ = ["Progress"]


class Progress:
    """A progress line, drawn only between measurements: a thread that draws would be measured too.

    Nothing is written to a pipe, a file or a terminal that cannot return to the start of a line
    (`TERM=dumb`). Leaving the block erases the line.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        stream = sys.stderr
        capable = (
            os.environ.get("TERM", "") not in ("dumb", "unknown") and os.name == "posix"
        )
        self._stream = (
            stream if capable and stream is not None and stream.isatty() else None
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._draw("")

    def show(self, what: str) -> None:
        """Show that `what` begins, and that everything before it is done."""
        self._done += 1
        self._draw(f"{what}, {self._done} of {self._total} ...")

    def show_experiment(self, what: str) -> None:
        """Show the experiment that begins; how many follow is unknown."""
        self._draw(f"experiment: {what} ...")

    def _draw(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            # A terminal that says 0 does not know; the last column is left, where some terminals wrap.
            columns = os.get_terminal_size(self._stream.fileno()).columns or 80
            self._stream.write(f"\r\x1b[K{line[: columns - 1]}")
            self._stream.flush()
        except (
            OSError,
            ValueError,
        ):  # the terminal has gone away: the measurements go on
            self._stream = None
