"""Check the arguments of `init_process_group` before ranks wait for each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from accel_core.errors import InvalidArgumentError, LaunchError

__all__ = ["check_seconds", "check_type", "to_timedelta"]


def to_timedelta(name: str, value: Any) -> timedelta | None:
    """Convert `value`, a `timedelta` or a number of seconds, to a `timedelta`. `None` remains `None`.

    `name` is the argument's name for error messages. Raises `InvalidArgumentError`, a `TypeError`, if `value`
    has any other type. Raises `LaunchError`, a `ValueError`, if the time is 0 or negative.
    """
    if value is None:
        return None
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    else:
        seconds = value
    check_seconds(name, seconds, "a datetime.timedelta, or a number of seconds above 0")
    if isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise _invalid_value_error(
            name, value, "a number of seconds that fits in a datetime.timedelta"
        ) from None


def check_seconds(
    name: str, value: Any, expected: str = "a number of seconds above 0"
) -> None:
    """Check that `value`, the argument named `name`, is a positive number of seconds.

    `expected` describes the valid values for the error message. Raises the same errors as `to_timedelta`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong_type_error(name, value, expected)
    if not value > 0:  # This also rejects NaN, for which every comparison is False.
        raise _invalid_value_error(name, value, expected)


def check_type(name: str, value: Any, expected_type: type, expected: str) -> None:
    """Check that `value`, the argument `name`, is `None` or an instance of `expected_type`, and not a bool.

    `expected` describes the valid values for the error message. Raises `InvalidArgumentError`, a `TypeError`,
    if the value is invalid.
    """
    if value is None:
        return
    # A bool is an int in Python, but not a rank.
    if isinstance(value, bool) or not isinstance(value, expected_type):
        raise _wrong_type_error(name, value, expected)


def _wrong_type_error(name: str, value: Any, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"init_process_group({name}={value!r}) is not valid, expected {expected}, not "
        f"{type(value).__name__}"
    )


def _invalid_value_error(name: str, value: Any, expected: str) -> LaunchError:
    return LaunchError(f"{name}={value!r} is not valid, expected {expected}")
