"""The live accelerator that a command is about."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import click

from accel_core import current
from accel_core.accelerators.interface import Accelerator
from accel_core.detection.records import How
from accel_core.errors import AcceleratorFallbackWarning
from accel_core.settings import Pin

__all__ = ["named_or_chosen"]


def named_or_chosen(name: Pin | None) -> tuple[Accelerator, How | None]:
    """The accelerator of that name, or else the chosen one and how it was chosen.

    Imports torch and the vendor's package; raises what `accel_core.accelerator` and `get_accelerator` do.
    """
    if name is not None:
        return current.accelerator(str(name)), None
    with _fallback_warning_as_message():
        return current.get_accelerator(), current.selection().how


@contextlib.contextmanager
def _fallback_warning_as_message() -> Iterator[None]:
    """Print the warning that the CPU is used as a message, without the line of code it comes from."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", AcceleratorFallbackWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, AcceleratorFallbackWarning):
                click.echo(f"Warning: {message}\n", err=True)
            else:
                usual(message, category, *rest, **more)

        warnings.showwarning = show
        yield
