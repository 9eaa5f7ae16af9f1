"""Tools of every layer, private: locks that survive a fork, the log, torch, installed packages, children."""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator

#: The log: the choice at INFO, at DEBUG each step on the way to it.
LOGGER = logging.getLogger("accel_core")
#: A record as `accel -v` shows it, and as a bundle of the doctor keeps it.
LINES = logging.Formatter("[accel %(asctime)s.%(msecs)03d %(process)d] %(message)s", "%H:%M:%S")


def fork_safe_lock() -> threading.RLock:
    """Return a re-entrant lock that is free in a forked child, unless the thread that forked holds it.

    No other thread is there to release it. The one that forked goes on, and releases what it holds.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: lock._is_owned() or lock._at_fork_reinit())  # type: ignore[attr-defined]
    return lock


@contextlib.contextmanager
def logged_by(handler: logging.Handler) -> Iterator[None]:
    """Give `handler` all records within the block."""
    before = LOGGER.level
    handler.setFormatter(LINES)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.setLevel(before)
        LOGGER.removeHandler(handler)
