"""Arguments of `accel run` and `accel deepspeed`: the launcher parses them, and the shell completes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from accel_core.plugins import installed_names

__all__ = ["Launcher", "words"]

F = TypeVar("F", bound=Callable[..., Any])


class Launcher(click.Command):
    """A command whose arguments and options another parser reads; its one argument does all completion."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take all words as they are: click would drop a `--` before the script."""
        ctx.params["arguments"] = tuple(args)
        return []

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[CompletionItem]:
        """Return completions for `incomplete`, also for a word that looks like an option."""
        return self.params[0].shell_complete(ctx, incomplete)


def words(*offered: str) -> Callable[[F], F]:
    """Return a decorator that gives a `Launcher` one argument for all of its words.

    Completion gives the options in `offered`, backend names after `--backend`, and otherwise files. After the
    script's name it gives files only, because all later words belong to the script.
    """

    def complete(
        ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before: tuple[str, ...] = ctx.params.get("arguments") or ()
        if before[-1:] == ("--backend",):
            names = [
                name
                for name in installed_names()
                if name.startswith(incomplete.lower())
            ]
            return list(map(CompletionItem, names))
        if incomplete.startswith("-") and not any(
            word.endswith(".py") for word in before
        ):
            return [
                CompletionItem(name) for name in offered if name.startswith(incomplete)
            ]
        return [CompletionItem(incomplete, type="file")]

    return click.argument(
        "arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=complete
    )
