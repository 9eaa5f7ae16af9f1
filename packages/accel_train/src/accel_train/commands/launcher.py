"""Define click commands whose arguments a launcher's own parser reads: `accel run` and `accel deepspeed`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from accel_core.plugins import installed_names

__all__ = ["Launcher", "all_arguments"]

F = TypeVar("F", bound=Callable[..., Any])


class Launcher(click.Command):
    """A command whose arguments a launcher's parser reads. Its only click argument completes all of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store all arguments unchanged, because click would drop a `--` before the script."""
        ctx.params["arguments"] = tuple(args)
        return []

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Return completions for `incomplete`, including a word that looks like an option."""
        return self.params[0].shell_complete(ctx, incomplete)


def _items_that_start_with(text: str, names: Iterable[str]) -> list[CompletionItem]:
    """Return a completion for each of `names` that starts with `text`."""
    return [CompletionItem(name) for name in names if name.startswith(text)]


def all_arguments(*options: str) -> Callable[[F], F]:
    """Return a decorator that gives a `Launcher` one click argument for the whole command line.

    Shell completion offers `options`, backend names after `--backend`, and otherwise files. After the
    script's name, it offers only files, because all later words are the script's arguments.
    """

    def complete(
        ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        typed: tuple[str, ...] = ctx.params.get("arguments") or ()
        if typed[-1:] == ("--backend",):
            return _items_that_start_with(incomplete.lower(), installed_names())
        is_script_named = any(word.endswith(".py") for word in typed)
        if incomplete.startswith("-") and not is_script_named:
            return _items_that_start_with(incomplete, options)
        return [CompletionItem(incomplete, type="file")]

    return click.argument(
        "arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=complete
    )
