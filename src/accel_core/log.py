"""Define accel's log: the logger, the format of its lines, and a handler for a block."""

import contextlib
import logging
from collections.abc import Iterator

#: The logger. The choice is logged at level INFO, each step before it at level DEBUG.
LOGGER = logging.getLogger("accel_core")
#: The format of a record in `accel -v`.
LINE_FORMATTER = logging.Formatter(
    "[accel %(asctime)s.%(msecs)03d %(process)d] %(message)s", "%H:%M:%S"
)


@contextlib.contextmanager
def logged_by(handler: logging.Handler) -> Iterator[None]:
    """Send accel's log records of every level to `handler` within the block."""
    previous_level = LOGGER.level
    handler.setFormatter(LINE_FORMATTER)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.setLevel(previous_level)
        LOGGER.removeHandler(handler)
