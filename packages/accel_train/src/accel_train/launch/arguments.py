"""Check the arguments of `init_process_group` before ranks wait for each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from accel_core.errors import InvalidArgumentError, LaunchError

__all__ = ["duration", "of_type", "seconds"]


def duration(name: str, value: Any) -> timedelta | None:
    """Return `value`, a `timedelta` or seconds, as a `timedelta`; `None` stays `None`.

    Raises `InvalidArgumentError`, a `TypeError`, for any other type. Raises `LaunchError`, a `ValueError`,
    for a time of 0 or less.
    """
    if value is None:
        return None
    given = value.total_seconds() if isinstance(value, timedelta) else value
    amount = seconds(name, given, "a datetime.timedelta, or seconds above 0")
    try:
        return value if isinstance(value, timedelta) else timedelta(seconds=amount)
    except OverflowError:
        raise _invalid(
            name, value, "a time that a datetime.timedelta can hold"
        ) from None


def seconds(name: str, value: Any, expected: str = "seconds above 0") -> float:
    """Return `value` in seconds. Raises what `duration` raises."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidArgumentError(
            f"init_process_group({name}={value!r}) is not valid, expected {expected}, not "
            f"{type(value).__name__}"
        )
    if not value > 0:  # not a number is not above it
        raise _invalid(name, value, expected)
    return value


def _invalid(name: str, value: Any, expected: str) -> LaunchError:
    return LaunchError(f"{name}={value!r} is not valid, expected {expected}")


def of_type(name: str, value: Any, kind: type, expected: str) -> None:
    """Raise `InvalidArgumentError` unless `value` is `None` or an instance of `kind`."""
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise InvalidArgumentError(
            f"init_process_group({name}={value!r}) is not valid, expected {expected}, not "
            f"{type(value).__name__}"
        )
