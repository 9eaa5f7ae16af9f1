"""The one channel that says what is about to run: a line of the log and, in a child process, of its parent.

Nothing in a process guards against a plugin or a vendor's package that ends or crashes it. So each step is
announced before it begins: the last line names the culprit.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar

__all__ = ["begin", "reported"]

_log = logging.getLogger(__name__)

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("accel_core_steps", default=None)


def begin(step: str) -> None:
    """Announce `step`, which begins now: `"importing torch_npu (accel-npu 0.1)"`."""
    _log.info("%s", step)
    listener = _listener.get()
    if listener is not None:
        listener(step)


@contextlib.contextmanager
def reported(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with each step that this thread or task begins, until the block ends."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
