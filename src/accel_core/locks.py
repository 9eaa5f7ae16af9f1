"""A lock that a forked child can use."""

import contextlib
import os
import threading
from collections.abc import Iterator


class ForkSafeLock:
    """A re-entrant lock that is free in a forked child, unless the forking thread holds
    it.

    With an ordinary lock, the child could wait forever: the thread that held the lock
    in the parent does not exist in the child.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._create_new_lock)

    def _create_new_lock(self) -> None:
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock until the block ends."""
        # A fork in the block replaces `self._lock`. The child must release the lock that
        # was acquired here.
        lock = self._lock
        with lock:
            yield
