"""`accel doctor --fix` and `--list`: run the fixes of plugins' checks, and list topics and checks."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import click

from accel_core.cli import page
from accel_core.cli.output import Output
from accel_tools.doctor.records import (
    DiagnosticContext,
    Finding,
    Level,
    Report,
    Topic,
)
from accel_tools.doctor.topics import checks

__all__ = ["FixOptions", "options", "write_list"]

F = TypeVar("F", bound=Callable[..., Any])


class FixOptions(NamedTuple):
    """The options `--fix`, `--dry-run`, `--yes` and `--list` of `accel doctor`."""

    fix: bool
    dry_run: bool
    yes: bool
    only_list: bool

    def validate(self, *, as_json: bool) -> None:
        """Raise `click.UsageError` if the options cannot be used together.

        They cannot if an option would have no effect without `--fix`, if `--fix` is combined with JSON
        output, or if `--fix` would have to ask a question without a terminal.
        """
        if self.dry_run and not self.fix:
            raise click.UsageError("--dry-run has no effect without --fix.")
        if self.yes and not self.fix:
            raise click.UsageError("--yes has no effect without --fix.")
        if not self.fix:
            return
        if as_json:
            raise click.UsageError(
                "--fix asks questions on the terminal. Next step: leave out --json."
            )
        asks_questions = not self.dry_run and not self.yes
        if asks_questions and not sys.stdin.isatty():
            raise click.UsageError(
                "--fix asks before each fix, but stdin is not a terminal. Next step: pass --yes "
                "to run all fixes, or --dry-run to show what each fix would do."
            )

    def run_fixes(self, context: DiagnosticContext, report: Report) -> Report:
        """Offer the fix of each failed check, and apply each fix that the user accepts.

        Returns the report with the check results after the fixes.
        """
        findings = []
        has_fix = False
        check_reports = list(checks.run_checks(context))
        for check_report in check_reports:  # All checks run before the first question.
            result = check_report
            if check_report.is_fixable:
                has_fix = True
                result = self._offer_fix(check_report, context)
            findings.append(result.to_finding())
        if not has_fix:
            click.echo("\nNo failed check has a fix.", err=True)
        return _with_check_findings(report, tuple(findings))

    def _offer_fix(
        self, check: checks.CheckReport, context: DiagnosticContext
    ) -> checks.CheckReport:
        """Ask whether to apply the fix of a check, and apply the fix if the answer is yes.

        `--yes` skips the question. Returns the result of the check after the fix, which is also
        printed, or `check` if the fix was not applied.
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


def _with_check_findings(report: Report, findings: tuple[Finding, ...]) -> Report:
    """Return the report with the findings of the topic `checks` replaced by `findings`."""
    topics = []
    for topic in report.topics:
        if topic.name == checks.TOPIC.name:
            topics.append(topic._replace(findings=findings))
        else:
            topics.append(topic)
    return report._replace(topics=tuple(topics))


def options(command: F) -> F:
    """Add the options `--fix`, `--dry-run`, `--yes` and `--list` to a command.

    The command receives the values of these options as the argument `fix_options`.
    """

    # click passes one argument per option. The command gets one argument with all four options.
    @functools.wraps(command)
    def with_fix_options(
        *args: Any, fix: bool, dry_run: bool, yes: bool, only_list: bool, **others: Any
    ) -> Any:
        fix_options = FixOptions(fix, dry_run, yes, only_list)
        return command(*args, fix_options=fix_options, **others)

    decorated: Any = with_fix_options
    # In the help, click lists the option that is added last first.
    for names, help_text in reversed(_OPTIONS):
        decorated = click.option(*names, is_flag=True, help=help_text)(decorated)
    return decorated  # type: ignore[no-any-return]


#: The names and the help text of each option, in the order of the help page.
_OPTIONS = (
    (
        ("--fix",),
        "Offer to run the fix of each failed plugin check. No fix installs packages.",
    ),
    (("--dry-run",), "With --fix: only print what each fix would do."),
    (("--yes",), "With --fix: run all fixes without asking."),
    (
        ("--list", "only_list"),
        "List the topics and the plugins' checks without running them.",
    ),
)


def write_list(
    context: DiagnosticContext,
    topics: Iterable[Topic],
    output: Output,
    *,
    as_json: bool,
) -> None:
    """Print a list of all topics and of all checks that plugins provide.

    No topic and no check is run.
    """
    check_reports = checks.list_checks(context)
    if as_json:
        output.write_json(_list_document(topics, check_reports))
    else:
        output.write_page(_list_page(topics, check_reports))


def _list_document(
    topics: Iterable[Topic], check_reports: Iterable[checks.CheckReport]
) -> dict[str, Any]:
    """Return the list of topics and checks as JSON-serializable values."""
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
            for check in check_reports
        ],
    }


def _list_page(
    topics: Iterable[Topic], check_reports: Iterable[checks.CheckReport]
) -> list[page.Part]:
    """Return the list of topics and checks as tables for the terminal."""
    titles = ("NAME", "FROM", "DESCRIPTION")
    topic_rows: list[list[page.Cell]] = []
    for topic in topics:
        row = [(topic.name, "bold"), ("accel-tools", "dim"), (topic.title, "")]
        topic_rows.append(row)
    parts = [page.heading("Topics"), page.table(titles, topic_rows)]
    check_rows: list[list[page.Cell]] = []
    for check in check_reports:
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
