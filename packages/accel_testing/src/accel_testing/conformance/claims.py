"""Functions that make a check fail, or skip it because the device does not claim the feature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

__all__ = [
    "NOT_CLAIMED",
    "BrokenPromise",
    "require",
    "require_raises",
    "require_type",
    "skip_unsupported",
]

#: The prefix of the reason if a check skips itself. The reasons in a vendor's file do not have this prefix.
NOT_CLAIMED = "not claimed: "


class BrokenPromise(AssertionError):  # noqa: N818 - what pytest shows is its name
    """The error of a failed check, whose text contains the operation, its result and the expected result."""

    __module__ = "accel_testing.conformance"


def require(condition: object, message: str) -> None:
    """Raise `BrokenPromise` with the text `message` unless `condition` is true."""
    __tracebackhide__ = True
    if not condition:
        raise BrokenPromise(message)


def require_type(value: object, expected_type: type, description: str) -> None:
    """Raise `BrokenPromise` unless the type of `value` is exactly `expected_type`.

    For example, a `bool` is not accepted as an `int`. `description` names the value in the error message.
    """
    __tracebackhide__ = True
    name = "None" if expected_type is type(None) else expected_type.__name__
    require(
        type(value) is expected_type,
        f"{description} returned {value!r}, of type {type(value).__name__}; expected {name}",
    )


def require_raises(
    call: Callable[[], Any], expected: type[BaseException], description: str
) -> str:
    """Check that `call` raises an error of the type `expected`, and return the error's text.

    Raises `BrokenPromise` if the call returns or raises a different error. `description` describes the call
    in the error message.
    """
    __tracebackhide__ = True
    try:
        result = call()
    except expected as error:
        return str(error)
    except Exception as error:
        raise BrokenPromise(
            f"{description} raised {type(error).__name__}: {error}; expected {expected.__name__}"
        ) from error
    raise BrokenPromise(
        f"{description} returned {result!r}; expected {expected.__name__}"
    )


def skip_unsupported(reason: str) -> NoReturn:
    """Skip the check, because the device does not claim the feature."""
    pytest.skip(NOT_CLAIMED + reason)
