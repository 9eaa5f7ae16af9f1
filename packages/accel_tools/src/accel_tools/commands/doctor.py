"""`accel doctor`: report each problem with the accelerators of this machine, and its next step."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import click

from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import Output, answering
from accel_core.explain.messages import troubleshooting_line
from accel_core.settings import Pin
from accel_core.text import one_line
from accel_tools.cli import fixes
from accel_tools.cli.progress import Progress
from accel_tools.commands import examined_folder
from accel_tools.doctor.issue import MESSAGES_WARNING, issue_markdown
from accel_tools.doctor.records import (
    DiagnosticContext,
    Finding,
    Level,
    Report,
    Topic,
    TopicResult,
)
from accel_tools.doctor.run import end_abandoned_topics, run_diagnostics
from accel_tools.doctor.topics import TOPICS, ranks_connect

__all__ = ["command"]

#: Facts are shown in two columns if no fact's name is longer than this number of characters.
_MAX_COLUMN = 24
_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


@click.command("doctor", cls=examined_folder.FolderOrNames)
@options.backend_names
@click.option(
    "--all", "show_all", is_flag=True, help="Show all findings and observations."
)
@click.option(
    "--topic",
    "topic_names",
    multiple=True,
    metavar="TOPIC",
    type=options.OneOf("topic", lambda: [topic.name for topic in TOPICS]),
    help="Examine only this topic. The option may be repeated. "
    f"Topics: {', '.join(topic.name for topic in TOPICS)}.",
)
@click.option(
    "--ranks",
    type=click.IntRange(2, 64),
    help="Also test whether this many ranks on this host can connect over gloo.",
)
@click.option(
    "--experiments/--no-experiments",
    default=True,
    help="Whether to rerun a failing program with one change at a time, to find the cause.",
)
@click.option(
    "--experiment-seconds",
    "seconds",
    type=click.FloatRange(min=1),
    default=60,
    show_default=True,
    help="Time limit in seconds for all experiments together.",
)
@options.probe_timeout
@options.as_json
@click.option(
    "--with-messages",
    is_flag=True,
    help=f"With --issue: add messages. {MESSAGES_WARNING}.",
)
@click.option(
    "--issue",
    "as_issue",
    is_flag=True,
    help="Print Markdown for a bug report: only codes, statuses, versions and names.",
)
@fixes.options
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[Pin, ...],
    *,
    show_all: bool,
    topic_names: tuple[str, ...],
    ranks: int | None,
    experiments: bool,
    seconds: float,
    timeout: float | None,
    as_json: bool,
    as_issue: bool,
    with_messages: bool,
    fix_options: fixes.FixOptions,
) -> None:
    """Report problems on this machine, or with NAME, and next steps.

    All topics are examined in parallel, in child processes. If a program fails or devices are missing,
    experiments look for the cause. Experiments change nothing on this machine. If NAME is a folder that accel
    setup --into created, only the environments in the folder are examined: whether each is complete, and
    which of them this machine uses.

    Exit status: 0 = healthy (missing devices or vendor packages don't count), 1 = warnings or errors, 2 =
    usage error. Errors are: no backend works, a pinned backend does not work, a present device does not work,
    or torch cannot be imported.
    """
    _survive_limit_of_cpu_time()
    _check_options(as_issue=as_issue, with_messages=with_messages, as_json=as_json)
    fix_options.validate(as_json=as_json)
    if ctx.obj is not None:  # The argument is a folder instead of names of backends.
        ctx.exit(examined_folder.write_report(ctx.obj, as_json=as_json))
    # The report for an issue contains no text of an experiment.
    runs_experiments = experiments and not as_issue
    experiment_seconds = seconds if runs_experiments else 0
    with answering(as_json=as_json) as output:
        settings = options.read_settings(timeout)
        context = DiagnosticContext(settings, dict(os.environ), names)
        if fix_options.only_list:
            fixes.write_list(context, TOPICS, output, as_json=as_json)
            ctx.exit(0)
        topics = _select_topics(topic_names)
        report = _run(context, topics, ranks, experiment_seconds)
        if as_issue:
            markdown = issue_markdown(context, report, with_messages=with_messages)
            output.write(markdown)
        elif as_json:
            output.write_json(report.to_dict())
        else:
            _write_page(report, output, show_all=show_all)
        if fix_options.fix:
            report = fix_options.run_fixes(context, report)
    end_abandoned_topics()
    ctx.exit(report.exit_status)


def _survive_limit_of_cpu_time() -> None:
    """Handle the signal for the soft limit of CPU time, which would end this process without a report.

    Child processes do not inherit the handler, so the limit ends the examined programs as usual.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if hasattr(signal, "SIGXCPU") and is_main_thread:
        # The default handler would end the process. This handler does nothing.
        signal.signal(signal.SIGXCPU, lambda *_: None)


def _check_options(*, as_issue: bool, with_messages: bool, as_json: bool) -> None:
    """Raise `click.UsageError` if options contradict each other."""
    if as_issue and as_json:
        raise click.UsageError(
            "--issue and --json both write to stdout. Next step: pass one of them."
        )
    if with_messages and not as_issue:
        raise click.UsageError("--with-messages has no effect without --issue.")


def _select_topics(names: Sequence[str]) -> list[Topic]:
    """Return the topics called `names`, or all topics if `names` is empty."""
    return [topic for topic in TOPICS if not names or topic.name in names]


def _run(
    context: DiagnosticContext,
    topics: Sequence[Topic],
    ranks: int | None,
    experiment_seconds: float,
) -> Report:
    """Run the topics and show a progress line for the terminal."""
    topic_count = len(topics)
    ranks_topic = None
    if ranks:
        ranks_topic = ranks_connect.topic(ranks, experiment_seconds)
        topic_count += 1
    with Progress(topic_count) as progress:
        return run_diagnostics(
            context,
            topics,
            on_wait=progress.show,
            on_experiment=progress.show_experiment,
            experiment_seconds=experiment_seconds,
            ranks_topic=ranks_topic,
        )


# --- The page ------------------------------------------------------------------------


def _write_page(report: Report, output: Output, *, show_all: bool) -> None:
    """Print the report as text, in ASCII if the output cannot represent the marks of the levels."""
    unicode_marks = "".join(level.mark for level in Level)
    in_unicode = output.can_write(unicode_marks)
    output.write_page(_page(report, in_unicode=in_unicode, show_all=show_all))


def _page(report: Report, *, in_unicode: bool, show_all: bool) -> list[page.Part]:
    """Return the page: the verdict, and each topic with its findings.

    `show_all` adds findings without a problem, facts and durations.
    """
    parts: list[page.Part] = [
        page.paragraph((one_line(report.verdict), _STYLES[report.level])),
        page.paragraph(),
    ]
    causes = _ShownCauses()
    for topic in report.topics:
        shown = []
        for finding in topic.findings:
            if show_all or finding.level is not Level.OK:
                shown.append(finding)
        parts += _describe_topic(
            topic, shown, causes, in_unicode=in_unicode, show_all=show_all
        )
    parts.append(page.paragraph())
    if not show_all:
        parts.append(page.paragraph(("All observations: `accel doctor --all`.", "dim")))
    if report.level is not Level.OK and find_spec("pip") is None:
        python = shlex.quote(sys.executable)
        note = (
            f"This environment has no pip. Before a step with `pip`, run `{python} -m ensurepip`, and type "
            f"`{python} -m pip` in place of `pip`."
        )
        parts.append(page.paragraph((note, "dim")))
    is_healthy = report.level is Level.OK and report.chosen not in (None, "cpu")
    if not is_healthy:
        parts.append(page.paragraph((troubleshooting_line(), "dim")))
    return parts


class _ShownCauses:
    """The causes of failures that the page has shown, so that each is shown once."""

    def __init__(self) -> None:
        #: The backend for which each cause was shown first, or "above" for a cause without a backend.
        self._place_by_cause: dict[str, str] = {}

    def text_of(self, finding: Finding) -> str:
        """Return the finding's text, with a reference instead of a cause that was shown before."""
        place = self._place_by_cause.get(finding.cause)
        if place is not None:
            return finding.text_referring_to(place)
        if finding.cause and finding.shows_cause:
            self._place_by_cause[finding.cause] = finding.about or "above"
        return finding.text

    def facts_of(self, finding: Finding) -> Mapping[str, str]:
        """Return the facts to show; a cause that was not shown before is one of them."""
        if finding.cause in self._place_by_cause:
            return finding.facts
        return finding.all_facts


def _describe_topic(
    topic: TopicResult,
    findings: Sequence[Finding],
    causes: _ShownCauses,
    *,
    in_unicode: bool,
    show_all: bool,
) -> list[page.Part]:
    """Return the line for a topic and its findings; `show_all` adds facts and the duration."""

    def mark(level: Level) -> page.Cell:
        text = level.mark if in_unicode else level.plain_mark
        return text, _STYLES[level]

    note = f"  {topic.ms / 1e3:.1f} s" if show_all else ""
    # A problem may have moved to the topic with its cause.
    has_no_problem_left = all(finding.level is Level.OK for finding in findings)
    if topic.level_of_moved_findings is not Level.OK and has_no_problem_left:
        note += "  (the problem is reported under a different title)"
    title = [(topic.title, "bold"), (note, "dim")]
    heading = (mark(topic.level), title)
    parts: list[page.Part] = [page.two_columns([heading], indent=0)]
    if topic.failed:
        failure = [(f"this topic could not be examined: {one_line(topic.failed)}", "")]
        parts.append(page.two_columns([(mark(Level.WARNING), failure)], indent=2))
    for finding in findings:
        row = (mark(finding.level), _describe_finding(finding, causes.text_of(finding)))
        parts.append(page.two_columns([row], indent=2))
        facts = causes.facts_of(finding)
        if show_all and facts:
            parts += _describe_facts(facts)
    return parts


def _describe_finding(finding: Finding, text: str) -> Sequence[page.Cell]:
    """Return the finding's name and `text`, with its proof and its next step on separate lines."""
    cells: list[page.Cell] = []
    if finding.about:
        cells += [(one_line(finding.about), "bold"), (": ", "")]
    cells.append((one_line(text), ""))
    if finding.proof:
        cells.append((f"\n{one_line(finding.proof_text)}", "bold"))
    if finding.step:
        cells.append((f"\n{one_line(finding.step)}", "dim"))
    return cells


def _describe_facts(facts: Mapping[str, str]) -> list[page.Part]:
    """Return the facts in two columns, or in one column if a fact's name is long."""
    rows = [(one_line(name), one_line(value)) for name, value in facts.items()]
    longest_name = max(len(name) for name, _ in rows)
    if longest_name <= _MAX_COLUMN:
        return [page.facts(rows, indent=5)]
    # The names are too long for a column, so each fact is a line without columns.
    no_mark = ("", "")
    parts = []
    for name, value in rows:
        line = [(name, "dim"), (f"  {value}", "")]
        parts.append(page.two_columns([(no_mark, line)], indent=3))
    return parts
