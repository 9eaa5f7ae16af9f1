"""The words of `accel run` and `accel deepspeed`: a launcher reads them, and the shell completes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from accel_core.toolkit import installed_names

__all__ = ["Launcher", "words"]

F = TypeVar("F", bound=Callable[..., Any])


class Launcher(click.Command):
    """A command whose words, options too, are another parser's: what completes is its argument's to say."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a word that looks like an option as the argument does."""
        return self.params[0].shell_complete(ctx, incomplete)


def words(*offered: str) -> Callable[[F], F]:
    """All words of a `Launcher`: `offered` options complete, names behind `--backend`, and else files.

    Behind the script everything is the script's, and only files complete.
    """

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before: tuple[str, ...] = ctx.params.get("arguments") or ()
        if before[-1:] == ("--backend",):
            names = [name for name in installed_names() if name.startswith(incomplete.lower())]
            return list(map(CompletionItem, names))
        if incomplete.startswith("-") and not any(word.endswith(".py") for word in before):
            return [CompletionItem(name) for name in offered if name.startswith(incomplete)]
        return [CompletionItem(incomplete, type="file")]

    return click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=complete)
