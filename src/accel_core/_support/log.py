"""`ACCEL_LOG`: what is tried, a line each on stderr, with the time of day and the process.

The variable, not a flag of this process: the child processes that try a vendor's package say what they do
too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

__all__ = ["MARK", "VARIABLE", "is_on", "parse", "say"]

#: As in the table of `accel_core.settings`, which is above this module.
VARIABLE = "ACCEL_LOG"
#: How every line begins.
MARK = "[accel "


def parse(text: str) -> bool:
    """Whether the variable's value asks for it: anything but a no."""
    return text.strip().lower() not in ("", "0", "false", "no", "off")


def is_on() -> bool:
    """Whether what is tried is to be said."""
    return parse(os.environ.get(VARIABLE, ""))


def say(what: str) -> None:
    """Say `what`, which is tried now or came of it; a stderr that is closed or full is no reason to fail."""
    if not is_on():
        return
    now = time.time()
    clock = f"{time.strftime('%H:%M:%S', time.localtime(now))}.{int(now % 1 * 1000):03d}"
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"{MARK}{clock} {os.getpid()}] {' '.join(what.split())}\n")
        sys.stderr.flush()
