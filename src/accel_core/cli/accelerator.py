"""The live accelerator that a command is about."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import click

from accel_core import current
from accel_core._support import log
from accel_core.accelerators.interface import Accelerator
from accel_core.detection.records import How
from accel_core.errors import AcceleratorFallbackWarning
from accel_core.settings import Pin

__all__ = ["fallback_in_words", "named_or_chosen"]


def named_or_chosen(name: Pin | None, *, option: str = "") -> tuple[Accelerator, How | None]:
    """The accelerator of that name, or else the chosen one and how it was chosen.

    Imports torch and the vendor's package; raises what `accel_core.accelerator` and `get_accelerator` do.
    Errors repeat the command as it was typed, with the `option` by which the name was given.
    """
    if name is not None:
        typed = " ".join(filter(None, [click.get_current_context().command_path, option, str(name)]))
        return current.named(name, typed), None
    with fallback_in_words():
        return current.get_accelerator(), current.selection().how


@contextlib.contextmanager
def fallback_in_words() -> Iterator[None]:
    """Print the warning that the CPU is used as a message, without the line of code it comes from.

    Where there merely is no accelerator, nobody has to hear it before each command; `-v` says it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always", AcceleratorFallbackWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if not isinstance(message, AcceleratorFallbackWarning):
                usual(message, category, *rest, **more)
            elif log.is_on() or not message.merely_absent:
                click.echo(f"Warning: {message}\n", err=True)

        warnings.showwarning = show
        yield
