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
    """A click command that leaves the parsing of its arguments to a launcher.

    Its only click argument exists for shell completion.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store all command-line arguments unchanged, because click would drop a `--` before the script."""
        ctx.params["arguments"] = tuple(args)
        return []  # No arguments are left for click.

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Return shell completions for the word `incomplete`, even if it looks like an option."""
        [only_argument] = self.params
        return only_argument.shell_complete(ctx, incomplete)


def _completions(text: str, names: Iterable[str]) -> list[CompletionItem]:
    """Return a completion for each of `names` that starts with `text`."""
    return [CompletionItem(name) for name in names if name.startswith(text)]


def all_arguments(*options: str) -> Callable[[F], F]:
    """Return a decorator that gives a `Launcher` command one click argument for the whole command line.

    Shell completion offers `options`, backend names after `--backend`, and files anywhere else. After the
    script's name, it offers only files, because all later words are the script's arguments.
    """

    def complete(
        ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        typed_words: tuple[str, ...] = ctx.params.get("arguments") or ()
        previous_word = typed_words[-1] if typed_words else ""
        if previous_word == "--backend":
            return _completions(incomplete.lower(), installed_names())
        # Options after the script are the script's own.
        is_script_named = any(word.endswith(".py") for word in typed_words)
        if incomplete.startswith("-") and not is_script_named:
            return _completions(incomplete, options)
        return [CompletionItem(incomplete, type="file")]

    return click.argument(
        "arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=complete
    )
