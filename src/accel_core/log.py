"""The log of accel: the logger, the form of its lines, and a handler for the time of a block."""

import contextlib
import logging
from collections.abc import Iterator

#: The log: the choice at INFO, at DEBUG each step on the way to it.
LOGGER = logging.getLogger("accel_core")
#: A record as `accel -v` shows it, and as a bundle of the doctor keeps it.
LINES = logging.Formatter("[accel %(asctime)s.%(msecs)03d %(process)d] %(message)s", "%H:%M:%S")


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
