"""Locks that a forked child can use: the thread that held one is not in the child to give it back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["ForkSafeLock", "after_fork_in_child"]


def after_fork_in_child(renew: Callable[[], None]) -> None:
    """Call `renew` in every child that is forked from now on; nothing where there are no forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)


class ForkSafeLock:
    """A re-entrant lock that is new, and free, in a forked child. Made once, at the top of a module."""

    def __init__(self) -> None:
        self._renew()
        after_fork_in_child(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def acquire(self, timeout: float = -1) -> bool:
        """Take the lock; False where that took more than `timeout` seconds (below 0: no limit)."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Give the lock back; `RuntimeError` where this thread does not hold it."""
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
