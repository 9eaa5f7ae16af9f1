"""Keeping what plugins and vendors print away from stdout, which belongs to the program that is running.

`contextlib.redirect_stdout` would do it for the whole process: other threads' output would go astray, and
two threads that leave in the wrong order would lose stdout for good.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from accel_core._support.forks import ForkSafeLock, after_fork_in_child

__all__ = ["stdout_to_stderr"]

_lock = ForkSafeLock()
_thread = threading.local()
_active = 0


class _Router:
    """Stands in for `sys.stdout`: this thread's output goes to stderr, everybody else's where it was."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if getattr(_thread, "quiet", False) else self._stream, name)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what this thread prints to stderr until the block ends."""
    global _active
    before = getattr(_thread, "quiet", False)
    with _lock:
        _active += 1
        if not isinstance(sys.stdout, _Router):
            sys.stdout = _Router(sys.stdout)
    _thread.quiet = True
    try:
        yield
    finally:
        _thread.quiet = before
        with _lock:
            _active -= 1
            if not _active and isinstance(sys.stdout, _Router):
                sys.stdout = sys.stdout._stream


def _count_again() -> None:
    """In a forked child there is this thread alone."""
    global _active
    _active = int(getattr(_thread, "quiet", False))


after_fork_in_child(_count_again)
