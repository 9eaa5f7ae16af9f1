"""`accel doctor --fix` and `--list`: run the fixes of plugins' checks, and list topics and checks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import click

from accel_core.cli import page
from accel_core.cli.output import Output
from accel_tools.doctor.records import DiagnosticContext, Level, Report, Topic
from accel_tools.doctor.topics import checks

__all__ = ["FixOptions", "options", "write_list"]

F = TypeVar("F", bound=Callable[..., Any])


class FixOptions(NamedTuple):
    """The options `--fix`, `--dry-run`, `--yes` and `--list`."""

    fix: bool
    dry_run: bool
    yes: bool
    only_list: bool

    def check(self, *, as_json: bool) -> None:
        """Check the combination of options.

        Raises `click.UsageError` if an option has no effect, or if `--fix` would ask a
        question without a terminal.
        """
        if self.dry_run and not self.fix:
            raise click.UsageError("--dry-run has no effect without --fix.")
        if self.yes and not self.fix:
            raise click.UsageError("--yes has no effect without --fix.")
        if not self.fix:
            return
        if as_json:
            raise click.UsageError(
                "--fix asks questions on the terminal: leave out --json."
            )
        needs_answers = not self.dry_run and not self.yes
        if needs_answers and not sys.stdin.isatty():
            raise click.UsageError(
                "--fix asks before each fix, but stdin is not a terminal: pass --yes to "
                "run all fixes, or --dry-run to show what each fix would do."
            )

    def run_fixes(self, context: DiagnosticContext, report: Report) -> Report:
        """Offer the fix of each failed check, and apply each fix that the user accepts.

        Returns the report with the results of the checks after the fixes.
        """
        results = []
        is_any_fixable = False
        for check in list(checks.run_checks(context)):
            if check.is_fixable:
                is_any_fixable = True
                results.append(self._offer(check, context))
            else:
                results.append(check)
        if not is_any_fixable:
            click.echo("\nNo failed check has a fix.", err=True)
        findings = tuple(check.to_finding() for check in results)
        return _with_check_findings(report, findings)

    def _offer(
        self, check: checks.CheckReport, context: DiagnosticContext
    ) -> checks.CheckReport:
        """Ask whether to apply the fix of `check` (`--yes` skips the question), and apply it.

        Prints and returns the result of the check after the fix, or returns `check`
        unchanged if the fix was not applied.
        """
        problem = f"{check.what} ({check.title}, {check.origin})"
        click.echo(f"\n{check.backend}: {problem}", err=True)
        if self.dry_run:
            click.echo(f"The fix would {check.fix}. Nothing was changed.", err=True)
            return check
        question = f"The fix would {check.fix}. Apply it?"
        if not self.yes and not click.confirm(question, err=True):
            return check
        result = checks.apply_fix(check, context)
        mark = Level(result.level).plain_mark
        click.echo(f"{mark} {result.what or 'the problem is fixed'}", err=True)
        return result


def _with_check_findings(report: Report, findings: tuple[Any, ...]) -> Report:
    """Return the report with the findings of the topic `checks` replaced by `findings`."""
    topics = []
    for topic in report.topics:
        is_checks = topic.name == checks.TOPIC.name
        topics.append(topic._replace(findings=findings) if is_checks else topic)
    return report._replace(topics=tuple(topics))


def options(command: F) -> F:
    """Add the options `--fix`, `--dry-run`, `--yes` and `--list` to a command.

    The command receives the options' values as the argument `fix_options`.
    """

    @functools.wraps(command)
    def with_fix_options(
        *args: Any, fix: bool, dry_run: bool, yes: bool, only_list: bool, **others: Any
    ) -> Any:
        fix_options = FixOptions(fix, dry_run, yes, only_list)
        return command(*args, fix_options=fix_options, **others)

    decorated: Any = with_fix_options
    # click lists the option that is added last first in the help.
    for name, text in (
        (("--list", "only_list"), "Only list the topics, and the plugins' checks."),
        (("--yes",), "With --fix: do not ask."),
        (("--dry-run",), "With --fix: only print what would be done."),
        (
            ("--fix",),
            "Run the fixes that plugins' checks offer, asking before each; installs nothing.",
        ),
    ):
        decorated = click.option(*name, is_flag=True, help=text)(decorated)
    return decorated  # type: ignore[no-any-return]


def write_list(
    context: DiagnosticContext,
    topics: Iterable[Topic],
    output: Output,
    *,
    as_json: bool,
) -> None:
    """Write the list of topics and plugins' checks, without running a topic or a check."""
    listed = checks.list_checks(context)
    if as_json:
        output.write_json(_list_document(topics, listed))
    else:
        output.write_page(_list_page(topics, listed))


def _list_document(
    topics: Iterable[Topic], listed: Iterable[checks.CheckReport]
) -> dict[str, Any]:
    return {
        "topics": [{"name": topic.name, "title": topic.title} for topic in topics],
        "checks": [
            {
                "name": check.name,
                "title": check.title,
                "backend": check.backend,
                "origin": check.origin,
                "fix": check.fix,
            }
            for check in listed
        ],
    }


def _list_page(
    topics: Iterable[Topic], listed: Iterable[checks.CheckReport]
) -> list[page.Part]:
    titles = ("NAME", "FROM", "DESCRIPTION")
    topic_rows: list[list[page.Cell]] = []
    for topic in topics:
        row = [(topic.name, "bold"), ("accel-core", "dim"), (topic.title, "")]
        topic_rows.append(row)
    parts = [page.heading("Topics"), page.table(titles, topic_rows)]
    check_rows: list[list[page.Cell]] = []
    for check in listed:
        check_rows.append(
            [
                (f"{check.backend} {check.name}".strip(), "bold"),
                (check.origin, "dim"),
                (check.title or check.what, ""),
                (f"--fix would {check.fix}" if check.fix else "", "dim"),
            ]
        )
    if check_rows:
        parts += [page.heading("Checks"), page.table(titles, check_rows)]
    return parts
