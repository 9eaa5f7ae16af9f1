"""`accel doctor --fix` and `--list`: run the fixes of plugins' checks, and list topics and checks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import click

from accel_core.cli import page
from accel_core.cli.output import Output
from accel_tools.doctor.records import Level, Report, Topic, Visit
from accel_tools.doctor.topics import checks

__all__ = ["Mending", "options", "write_list"]

F = TypeVar("F", bound=Callable[..., Any])


class Mending(NamedTuple):
    """Options of `--fix`: whether to fix, only show, ask before each fix, or list the fixes."""

    fix: bool
    dry_run: bool
    yes: bool
    listing: bool

    def check(self, *, as_json: bool) -> None:
        """Raise `click.UsageError` if nobody could be asked, or if an option has no effect."""
        if (self.dry_run or self.yes) and not self.fix:
            option = "--dry-run" if self.dry_run else "--yes"
            raise click.UsageError(f"{option} says how to fix: give it with --fix.")
        if self.fix and as_json:
            raise click.UsageError(
                "--fix asks questions on the terminal: give it without --json."
            )
        if self.fix and not (self.dry_run or self.yes or sys.stdin.isatty()):
            raise click.UsageError(
                "--fix asks before each fix, but stdin is not a terminal: give --yes to run all fixes, or "
                "--dry-run to see what they would do."
            )

    def offer(self, visit: Visit, report: Report) -> Report:
        """Ask before each fix, apply it and print the result; return the report after the fixes."""
        found = [*checks.run(visit)]
        left = []
        for checked in found:
            mended = checked
            if checked.fix and checked.level != "ok":
                click.echo(
                    f"\n{checked.backend}: {checked.what} ({checked.title}, {checked.origin})",
                    err=True,
                )
                if self.dry_run:
                    click.echo(f"It would {checked.fix}. Nothing was done.", err=True)
                elif self.yes or click.confirm(
                    f"It would {checked.fix}. Do it?", err=True
                ):
                    mended = checks.mend(checked, visit)
                    sign = Level(mended.level).plain_mark
                    click.echo(
                        f"{sign} {mended.what or 'it is as it should be'}", err=True
                    )
            left.append(mended)
        if not any(checked.fix and checked.level != "ok" for checked in found):
            click.echo("\nNo check found anything that it can fix.", err=True)
        findings = tuple(checked.finding() for checked in left)
        topics = (
            t._replace(findings=findings) if t.name == checks.TOPIC.name else t
            for t in report.topics
        )
        return report._replace(topics=tuple(topics))


def options(command: F) -> F:
    """Add `--fix`, `--dry-run`, `--yes` and `--list`; the command gets them as `mend`."""

    @functools.wraps(command)
    def gathered(
        *args: Any, fix: bool, dry_run: bool, yes: bool, listing: bool, **more: Any
    ) -> Any:
        return command(*args, mend=Mending(fix, dry_run, yes, listing), **more)

    made: Any = gathered
    for name, text in (
        (("--list", "listing"), "Only list the topics, and the plugins' checks."),
        (("--yes",), "With --fix: ask nothing."),
        (("--dry-run",), "With --fix: only print what would be done."),
        (
            ("--fix",),
            "Run the fixes that plugins' checks offer, asking before each; installs nothing.",
        ),
    ):
        made = click.option(*name, is_flag=True, help=text)(made)
    return made  # type: ignore[no-any-return]


def write_list(
    visit: Visit, topics: Iterable[Topic], output: Output, *, as_json: bool
) -> None:
    """Write what a visit examines: the topics, and the plugins' checks."""
    found = checks.listed(visit)
    if as_json:
        listed = [
            {
                "name": c.name,
                "title": c.title,
                "backend": c.backend,
                "origin": c.origin,
                "fix": c.fix,
            }
            for c in found
        ]
        named = [{"name": topic.name, "title": topic.title} for topic in topics]
        output.write_json({"topics": named, "checks": listed})
        return
    rows = [
        [(topic.name, "bold"), ("accel-core", "dim"), (topic.title, "")]
        for topic in topics
    ]
    parts: list[Any] = [
        page.heading("Topics"),
        page.table(("name", "from", "what"), rows),
    ]
    if found:
        lines = [
            [
                (f"{c.backend} {c.name}".strip(), "bold"),
                (c.origin, "dim"),
                (c.title or c.what, ""),
                (f"--fix would {c.fix}" if c.fix else "", "dim"),
            ]
            for c in found
        ]
        parts += [page.heading("Checks"), page.table(("name", "from", "what"), lines)]
    output.write_page(parts)
