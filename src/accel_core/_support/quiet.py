"""What one thread prints, sent to stderr or captured: stdout belongs to the program that is running.

`contextlib.redirect_stdout` would do it for the whole process: other threads' output would go astray, and
two threads that leave in the wrong order would lose stdout for good.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from accel_core._support.forks import ForkSafeLock, after_fork_in_child

__all__ = ["captured_stdout", "stdout_to_stderr"]

_lock = ForkSafeLock()
#: `target`: gives the stream that takes this thread's output; `None`, or missing, outside every block.
_thread = threading.local()
_active = 0


class _Router:
    """Stands in for `sys.stdout`: a thread's output goes to its target, everybody else's where it was."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        target = getattr(_thread, "target", None)
        return getattr(self._stream if target is None else target(), name)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what this thread prints to stderr until the block ends."""
    with _redirected(lambda: sys.stderr):
        yield


@contextlib.contextmanager
def captured_stdout() -> Iterator[io.StringIO]:
    """Keep what this thread prints until the block ends, and print nothing of it."""
    printed = io.StringIO()
    with _redirected(lambda: printed):
        yield printed


@contextlib.contextmanager
def _redirected(target: Callable[[], Any]) -> Iterator[None]:
    global _active
    before = getattr(_thread, "target", None)
    with _lock:
        _active += 1
        if not isinstance(sys.stdout, _Router):
            sys.stdout = _Router(sys.stdout)
    _thread.target = target
    try:
        yield
    finally:
        _thread.target = before
        with _lock:
            _active -= 1
            if not _active and isinstance(sys.stdout, _Router):
                sys.stdout = sys.stdout._stream


def _count_again() -> None:
    """In a forked child there is this thread alone."""
    global _active
    _active = int(getattr(_thread, "target", None) is not None)


after_fork_in_child(_count_again)
