"""The log of what is tried, at INFO under the logger "accel_core": as lines, and out of child processes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["LINES", "LOGGER", "Relay", "handled_by", "is_on", "received"]

LOGGER = logging.getLogger("accel_core")
#: A record as `accel -v` shows it, and as a bundle of the doctor keeps it.
LINES = logging.Formatter("[accel %(asctime)s.%(msecs)03d %(process)d] %(message)s", "%H:%M:%S")


def is_on() -> bool:
    """Return whether somebody wants to know what is tried."""
    return LOGGER.isEnabledFor(logging.INFO)


@contextlib.contextmanager
def handled_by(handler: logging.Handler) -> Iterator[None]:
    """Give `handler` all records at INFO and above within the block."""
    before = LOGGER.level
    handler.setFormatter(LINES)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.setLevel(before)
        LOGGER.removeHandler(handler)


class Relay(logging.Handler):
    """In a child process: says each record to the parent, whose `received` logs it there."""

    def __init__(self, say: Callable[..., None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, with the child's own time and number."""
        self._say(log=record.getMessage(), name=record.name, at=record.created, process=record.process)


def received(line: dict[str, Any]) -> None:
    """Log what a `Relay` said."""
    at = line["at"]
    told = {"name": line["name"], "msg": line["log"], "created": at, "msecs": at % 1 * 1e3}
    record = logging.makeLogRecord(
        {**told, "levelno": logging.INFO, "levelname": "INFO", "process": line["process"]}
    )
    logging.getLogger(record.name).handle(record)
