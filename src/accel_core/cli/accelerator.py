"""The accelerator that a command is about, which is asked in a child process."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from accel_core import asking
from accel_core._support import log
from accel_core.asking import Asked, Make
from accel_core.settings import Pin, Settings

__all__ = ["answer_of", "fallback_in_words"]


def answer_of(
    make: Make,
    arguments: dict[str, Any],
    settings: Settings,
    name: Pin | None,
    *,
    option: str = "",
    **how: Any,
) -> Asked:
    """Call `make` on the accelerator of that name, or on the chosen one, in a child process.

    Raises as `accel_core.accelerator` and `get_accelerator` do; errors repeat the command as it was typed,
    with the `option` that gave the name. Writes to stderr which backends crashed while they were tried,
    and that the CPU is used. `how`: as `asking.ask` takes it.
    """
    if name is not None:
        typed = " ".join(filter(None, [click.get_current_context().command_path, option, str(name)]))
        settings = settings._replace(asked=typed)
    asked = asking.ask(make, arguments, settings, pin=name, **how)
    for sentence in asked.died:
        click.echo(f"Warning: {sentence}.\n", err=True)
    for message, merely_absent in asked.fallback:
        _say(message, merely_absent=merely_absent)
    return asked


def _say(message: str, *, merely_absent: bool) -> None:
    """Print a warning; one that only says that no accelerator is present is printed under `-v` alone."""
    if log.is_on() or not merely_absent:
        click.echo(f"Warning: {message}\n", err=True)


def fallback_in_words() -> contextlib.AbstractContextManager[None]:
    """Print the warning that the CPU is used as a message, without the line of code it comes from."""
    return asking.fallbacks_to(lambda warning: _say(str(warning), merely_absent=warning.merely_absent))
