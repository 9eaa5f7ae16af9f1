"""Locks that a forked child can use."""

import os
import threading


def fork_safe_lock() -> threading.RLock:
    """Return a re-entrant lock that is free in a forked child.

    A fork waits until no other thread holds the lock: the child would inherit a locked
    lock without the thread that unlocks it.
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):  # not on Windows
        os.register_at_fork(
            before=lock.acquire,
            after_in_parent=lock.release,
            after_in_child=lock.release,
        )
    return lock
