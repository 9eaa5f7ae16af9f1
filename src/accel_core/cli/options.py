"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

from accel_core.detection.discovery import installed_names
from accel_core.settings import ACCEL_PROBE_TIMEOUT, Pin, Settings, parse_pin, read

__all__ = ["as_json", "backend_name", "backend_names", "backend_option", "probe_timeout", "read_settings"]

T = TypeVar("T")


def read_settings(timeout: float | None = None) -> Settings:
    """The settings in the environment, with the time that the command line gives; raises `SettingError`."""
    settings = read()
    return settings if timeout is None else settings._replace(probe_timeout=timeout)


def _pin(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Pin | None:
    return None if value is None else _parsed(parse_pin, value)


def _pins(_ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]) -> tuple[Pin, ...]:
    return tuple(_parsed(parse_pin, value) for value in values)


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    return None if value is None else _parsed(ACCEL_PROBE_TIMEOUT.parse, value)


def _parsed(parse: Callable[[str], T], value: str) -> T:
    """Parse a value as the settings do; a complaint is a usage error."""
    try:
        return parse(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not valid, expected {error}.") from None


def _installed(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names that are installed, from metadata: no plugin is imported for a press of the tab key."""
    return [CompletionItem(name) for name in installed_names() if name.startswith(incomplete.lower())]


#: `--json`.
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

#: `[NAME]`, written as `DS_ACCELERATOR` writes one; the command gets a `Pin` or `None`.
backend_name = click.argument(
    "name", required=False, metavar="[NAME]", callback=_pin, shell_complete=_installed
)

#: `[NAME]...`; the command gets a tuple of `Pin`s, empty where none is given.
backend_names = click.argument(
    "names", nargs=-1, metavar="[NAME]...", callback=_pins, shell_complete=_installed
)

_THIS = "This backend, instead of the chosen one."
#: `--backend NAME`; the command gets a `Pin` or `None`.
backend_option = click.option(
    "--backend", metavar="NAME", callback=_pin, shell_complete=_installed, help=_THIS
)

_HOW_LONG = "Stop a probe after SECONDS [default: ACCEL_PROBE_TIMEOUT, or 60]."
#: `--timeout`; the command gets a number of seconds or `None`.
probe_timeout = click.option("--timeout", metavar="SECONDS", callback=_seconds, help=_HOW_LONG)
