"""The log of accel: the logger, the format of its lines, and a handler for a block."""

import contextlib
import logging
from collections.abc import Iterator

#: The log: the choice at INFO, each step before it at DEBUG.
LOGGER = logging.getLogger("accel_core")
#: The format of a record in `accel -v`.
LINES = logging.Formatter(
    "[accel %(asctime)s.%(msecs)03d %(process)d] %(message)s", "%H:%M:%S"
)


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
