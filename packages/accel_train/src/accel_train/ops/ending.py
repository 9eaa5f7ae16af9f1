"""End a build together with its parent process, and with every compiler that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from accel_core.sandbox import processes

__all__ = ["end_group_with_parent"]

#: Seconds in which what a child has started must end after SIGTERM.
_LAST_SECONDS = 2.0


def end_group_with_parent(parent: int) -> None:
    """In the child, a session leader: at SIGTERM or when `parent` ends, end with all started processes.

    This process gets SIGTERM first, and `_LAST_SECONDS` to end: ninja starts each compiler in a process group
    of its own, and ends these groups itself.
    """
    if sys.platform == "win32":
        return

    def end(*_: object) -> None:
        import time

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        until = time.monotonic() + _LAST_SECONDS
        with contextlib.suppress(ChildProcessError):  # none is left
            while time.monotonic() < until:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(0.01)
        os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGTERM, end)
    processes.end_with_parent(parent, number=signal.SIGTERM)
