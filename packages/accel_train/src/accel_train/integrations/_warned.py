"""Convert an adapter's errors into warnings. Frameworks log an adapter's error only at DEBUG, or crash."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["errors_as_warning", "warn_user"]


@contextmanager
def errors_as_warning(framework: str, next_step: str) -> Iterator[None]:
    """Return a context manager that turns an exception in its `with` block into a warning.

    The warning ends with `next_step`, a sentence on what the user can do.
    """
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).rstrip('.')}"
        warn_user(f"{framework} cannot use accel's accelerator: {reason}. {next_step}")


def warn_user(text: str) -> None:
    """Issue a warning that never becomes an error, even if the user's filters turn warnings into errors.

    An error would stop the framework's import.
    """
    with warnings.catch_warnings():
        # The user's filters may turn warnings into errors.
        warnings.simplefilter("default")
        warnings.warn(text, RuntimeWarning, stacklevel=2)
