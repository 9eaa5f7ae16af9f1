"""Warn if a door stays shut: frameworks log a failing plugin at DEBUG, or crash with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["warned", "warning"]


@contextmanager
def warned(framework: str, step: str) -> Iterator[None]:
    """Turn an exception in the block into one warning that says why, and names the remedy `step`."""
    try:
        yield
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).rstrip('.')}"
        warning(f"{framework} cannot use accel's accelerator: {why}. {step}")


def warning(text: str) -> None:
    """Warn the user, even if warnings are errors: an error would stop the import of the framework."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.warn(text, RuntimeWarning, stacklevel=2)
