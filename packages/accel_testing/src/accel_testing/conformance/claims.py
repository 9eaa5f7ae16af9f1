"""Results of a check for a broken promise, and for one that the device never made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

__all__ = [
    "NOT_CLAIMED",
    "BrokenPromise",
    "not_claimed",
    "refused",
    "require",
    "require_type",
]

#: How the reason of a check begins that does not apply: no skip of the vendor's.
NOT_CLAIMED = "not claimed: "


class BrokenPromise(AssertionError):  # noqa: N818 - what pytest shows is its name
    """A check's finding: what was done, what the result was, and what was expected."""

    __module__ = "accel_testing.conformance"


def require(kept: object, words: str) -> None:
    """Raise `BrokenPromise` with `words` unless `kept`."""
    __tracebackhide__ = True
    if not kept:
        raise BrokenPromise(words)


def require_type(value: object, kind: type, what: str) -> None:
    """Raise `BrokenPromise` unless the type is exactly `kind`: a `bool` is not accepted as an `int`."""
    __tracebackhide__ = True
    expected = "None" if kind is type(None) else kind.__name__
    require(
        type(value) is kind,
        f"{what} gave {value!r}, of type {type(value).__name__}; expected {expected}",
    )


def refused(call: Callable[[], Any], kinds: type[BaseException], what: str) -> str:
    """Return the text of the error that `call` raises, which must be one of `kinds`."""
    __tracebackhide__ = True
    try:
        given = call()
    except kinds as error:
        return str(error)
    except Exception as error:
        raise BrokenPromise(
            f"{what} raised {type(error).__name__}: {error}; expected {kinds.__name__}"
        ) from error
    raise BrokenPromise(f"{what} gave {given!r}; expected {kinds.__name__}")


def not_claimed(words: str) -> NoReturn:
    """Skip the check, because the device does not claim the feature."""
    pytest.skip(NOT_CLAIMED + words)
