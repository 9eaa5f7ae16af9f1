"""Profiler ranges, which only count their calls, so that a test can check the calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_open: list[str] = []
_started: dict[int, str] = {}


def mark(msg: str) -> None:
    _check(msg)


def range_push(msg: str) -> int:
    _check(msg)
    _open.append(msg)
    return len(_open) - 1


def range_pop() -> int:
    if _open:
        _open.pop()
    return len(_open)


def range_start(msg: str) -> int:
    _check(msg)
    _started[len(_started) + 1] = msg
    return len(_started)


def range_end(range_id: int) -> None:
    _started.pop(range_id, None)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def _check(msg: str) -> None:
    if not isinstance(msg, str):
        raise TypeError(f"the name of a range must be a str, not {type(msg).__name__}")
