"""Profiler ranges that only count their calls, so that a test can check the calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

#: The ranges that `range_push` has opened and `range_pop` has not closed yet.
_open_ranges: list[str] = []
#: The ranges that `range_start` has started and `range_end` has not ended yet, by id.
_started_ranges: dict[int, str] = {}
_range_ids = itertools.count(1)


def mark(msg: str) -> None:
    _check_message(msg)


def range_push(msg: str) -> int:
    _check_message(msg)
    _open_ranges.append(msg)
    return len(_open_ranges) - 1


def range_pop() -> int:
    if _open_ranges:
        _open_ranges.pop()
    return len(_open_ranges)


def range_start(msg: str) -> int:
    _check_message(msg)
    range_id = next(_range_ids)
    _started_ranges[range_id] = msg
    return range_id


def range_end(range_id: int) -> None:
    _started_ranges.pop(range_id, None)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def _check_message(msg: str) -> None:
    """Raise `TypeError` if the name of a profiler range is not a string."""
    if not isinstance(msg, str):
        raise TypeError(f"the name of a range must be a str, not {type(msg).__name__}")
