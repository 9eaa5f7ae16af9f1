"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from accel_core.detection.discovery import installed_names
from accel_core.errors import did_you_mean
from accel_core.settings import ACCEL_PROBE_TIMEOUT, Settings, parse_pin, read


def read_settings(timeout: float | None = None) -> Settings:
    """Return the settings in the environment, with the command line's timeout; raises `SettingError`."""
    settings = read()
    return settings if timeout is None else settings._replace(probe_timeout=timeout)


class OneOf(click.ParamType):  # type: ignore[type-arg]
    """A click type that accepts the names a function returns; the error for any other value suggests one."""

    def __init__(self, kind: str, names: Callable[[], Iterable[str]]) -> None:
        self.name, self._names = kind, names

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it is one of the names."""
        names = list(self._names())
        if value not in names:
            meant = did_you_mean(value, names) or f" Choose from {', '.join(names)}."
            self.fail(f"there is no {self.name} {value!r}.{meant}", param, ctx)
        return value

    def shell_complete(self, ctx: Any, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with the typed text."""
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete.lower())]


class _Parsed(OneOf):
    """A value that the settings parse; a complaint of theirs is bad usage."""

    def __init__(self, parse: Callable[[str], Any], names: Callable[[], Iterable[str]] = list) -> None:
        super().__init__("value", names)
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed value."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"{value!r} is not valid, expected {error}.", param, ctx)


#: The names that are installed, from metadata: no plugin is imported for a press of the tab key.
_BACKEND = _Parsed(parse_pin, installed_names)

#: `--json`.
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

#: `[NAME]`, written as `DS_ACCELERATOR` writes one; the command gets a `Pin` or `None`.
backend_name = click.argument("name", required=False, metavar="[NAME]", type=_BACKEND)

#: `[NAME]...`; the command gets a tuple of `Pin`s, empty where none is given.
backend_names = click.argument("names", nargs=-1, metavar="[NAME]...", type=_BACKEND)

_HOW_LONG = "Stop a probe after SECONDS [default: ACCEL_PROBE_TIMEOUT, or 60]."
#: `--timeout`; the command gets a number of seconds or `None`.
probe_timeout = click.option(
    "--timeout", metavar="SECONDS", type=_Parsed(ACCEL_PROBE_TIMEOUT.parse), help=_HOW_LONG
)
