"""A warning for a door that stays shut: frameworks log a failing plugin at DEBUG, or end with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["warned", "warning"]


@contextmanager
def warned(framework: str, step: str) -> Iterator[None]:
    """Turn an error in the block into one warning: `framework` goes on without us; `step` is the remedy."""
    try:
        yield
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).rstrip('.')}"
        warning(f"{framework} does not get accel's accelerator: {why}. {step}")


def warning(text: str) -> None:
    """Warn the user, also where warnings are errors: an error would end the framework's own import."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn(text, RuntimeWarning, stacklevel=2)
