"""A progress line on stderr, if stderr is a terminal.

The line shows the current step and how many steps have begun.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

__all__ = ["Progress"]


class Progress:
    """A progress line for a known number of steps, used as a context manager.

    The line is drawn only between steps, because a thread that draws would affect the measurements. Nothing
    is written to a pipe, to a file, or to a terminal that cannot redraw a line (`TERM=dumb`). Leaving the
    `with` block erases the line.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun = 0
        self._stream = sys.stderr if _is_capable_terminal() else None

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
        """Show that the step called `what` begins, with the number of the step."""
        self._begun += 1
        self._draw(f"{what}, {self._begun} of {self._total} ...")

    def show_experiment(self, what: str) -> None:
        """Show that the experiment called `what` begins.

        No number is shown, because the total number of experiments is unknown.
        """
        self._draw(f"experiment: {what} ...")

    def _draw(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            # 0 columns mean that the width is unknown. The last column stays empty, because
            # some terminals wrap a line that fills it.
            columns = os.get_terminal_size(self._stream.fileno()).columns or 80
            erase_line = "\r\x1b[K"
            self._stream.write(erase_line + line[: columns - 1])
            self._stream.flush()
        except (OSError, ValueError):
            # The terminal was closed. The steps continue without a progress line.
            self._stream = None


def _is_capable_terminal() -> bool:
    """Return whether stderr is a terminal that can redraw a line."""
    if os.name != "posix" or os.environ.get("TERM", "") in ("dumb", "unknown"):
        return False
    return sys.stderr is not None and sys.stderr.isatty()
