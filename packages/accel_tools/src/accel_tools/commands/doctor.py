"""`accel doctor`: report what is wrong with the accelerators here, and the next command for each fault."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from accel_core.cli import output as options
from accel_core.cli import page
from accel_core.cli.output import answering
from accel_core.settings import Pin
from accel_core.text import one_line
from accel_tools.cli import mending
from accel_tools.cli.progress import Progress
from accel_tools.commands import examined_folder
from accel_tools.doctor.issue import MAY_HOLD, issue
from accel_tools.doctor.records import Examined, Finding, Level, Report, Visit
from accel_tools.doctor.run import end_given_up, visited
from accel_tools.doctor.topics import TOPICS, ranks_meet

__all__ = ["command"]

#: Names of facts beyond this are no column.
_LONGEST = 24
_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.ERROR: "bold red"}


@click.command("doctor", cls=examined_folder.FolderOrNames)
@options.backend_names
@click.option(
    "--all", "everything", is_flag=True, help="Show all findings and observations."
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    type=options.OneOf("topic", lambda: [topic.name for topic in TOPICS]),
    help=f"Examine only this topic; may be repeated: {', '.join(topic.name for topic in TOPICS)}.",
)
@click.option(
    "--ranks",
    type=click.IntRange(2, 64),
    help="Also let this many ranks meet on this host, over gloo.",
)
@click.option(
    "--experiments/--no-experiments",
    default=True,
    help="Whether to run programs with one thing changed to find a cause.",
)
@click.option(
    "--experiment-seconds",
    "seconds",
    type=click.FloatRange(min=1),
    default=60,
    show_default=True,
    help="The time for all experiments.",
)
@options.probe_timeout
@options.as_json
@click.option(
    "--with-messages",
    is_flag=True,
    help=f"With --issue: add messages. {MAY_HOLD}.",
)
@click.option(
    "--issue",
    "for_issue",
    is_flag=True,
    help="Print Markdown for a bug report: codes, statuses, versions and names alone.",
)
@mending.options
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[Pin, ...],
    *,
    everything: bool,
    topics: tuple[str, ...],
    ranks: int | None,
    experiments: bool,
    seconds: float,
    timeout: float | None,
    as_json: bool,
    for_issue: bool,
    with_messages: bool,
    mend: mending.Mending,
) -> None:
    """Report what is wrong here, or with each NAME, and the next step.

    All topics run in child processes, in parallel. If a program fails, or devices are missing, experiments
    in child processes look for the cause; they change nothing here. With the FOLDER of accel setup --into:
    its environments, whether each is whole, and which one this machine takes.

    Exit status: 0 = healthy (missing devices or vendor packages don't count), 1 = warnings or errors, 2 = bad
    usage. These are errors: no backend works; a pinned backend does not work; a present device does not work;
    torch cannot be imported.
    """
    _check(for_issue=for_issue, with_messages=with_messages, as_json=as_json)
    mend.check(as_json=as_json)
    if ctx.obj is not None:
        ctx.exit(examined_folder.report(ctx.obj, as_json=as_json))
    with answering(as_json=as_json) as output:
        visit = Visit(options.read_settings(timeout), dict(os.environ), names)
        if mend.listing:
            mending.write_list(visit, TOPICS, output, as_json=as_json)
            ctx.exit(0)
        wanted = [topic for topic in TOPICS if not topics or topic.name in topics]
        # The report for an issue has no text of an experiment.
        budget = seconds if experiments and not for_issue else 0
        meeting = ranks_meet.topic(ranks, budget) if ranks else None
        with Progress(len(wanted) + bool(meeting)) as progress:
            report = visited(
                visit,
                wanted,
                progress.show,
                progress.show_experiment,
                budget,
                meeting,
            )
        if for_issue:
            output.write(issue(visit, report, with_messages=with_messages))
        elif as_json:
            output.write_json(report.to_dict())
        else:
            in_unicode = output.can_write("".join(level.mark for level in Level))
            output.write_page(
                _page(report, in_unicode=in_unicode, everything=everything)
            )
        if mend.fix:
            report = mend.offer(visit, report)
    end_given_up()
    ctx.exit(report.exit_status)


def _check(*, for_issue: bool, with_messages: bool, as_json: bool) -> None:
    if for_issue and as_json:
        raise click.UsageError(
            "--issue and --json both write to stdout: give one of them."
        )
    if with_messages and not for_issue:
        raise click.UsageError("--with-messages is for the report: give --issue too.")


def _page(report: Report, *, in_unicode: bool, everything: bool) -> list[page.Part]:
    parts: list[page.Part] = [
        page.paragraph((one_line(report.verdict), _STYLES[report.level])),
        page.paragraph(),
    ]
    told: dict[str, str] = {}
    for topic in report.topics:
        shown = [
            _once(f, told)
            for f in topic.findings
            if everything or f.level is not Level.OK
        ]
        parts += _topic(topic, shown, in_unicode=in_unicode, everything=everything)
    if not everything:
        parts += [
            page.paragraph(),
            page.paragraph(("All observations: `accel doctor --all`.", "dim")),
        ]
    return parts


def _once(finding: Finding, told: dict[str, str]) -> Finding:
    """The finding without a cause that the page has `told`, by whom; its own is told from then on."""
    what, facts = finding.what, finding.facts
    for cause, whose in told.items():
        what = what.replace(
            f": {cause}", f", for the same reason as {whose or 'above'}"
        )
    cause = facts.get("root cause", "")
    if cause and (cause in what or cause in told):
        facts = {
            n: value.replace(f": {cause}", "")
            for n, value in facts.items()
            if n != "root cause"
        }
    if cause:
        told.setdefault(cause, finding.about)
    return finding._replace(what=what, facts=facts)


def _topic(
    topic: Examined, findings: Sequence[Finding], *, in_unicode: bool, everything: bool
) -> list[page.Part]:
    """The topic's line, and below it these findings; `everything`: with their facts, and what it took."""

    def mark(level: Level) -> page.Cell:
        return (level.mark if in_unicode else level.plain_mark), _STYLES[level]

    more = f"  {topic.ms / 1e3:.1f} s" if everything else ""
    if topic.merged is not Level.OK:
        more += "  (what is wrong here is reported with its cause, under another title)"
    parts: list[page.Part] = [
        page.hanging([(mark(topic.level), [(topic.title, "bold"), (more, "dim")])], 0)
    ]
    if topic.failed:
        failed = f"this could not be examined: {one_line(topic.failed)}"
        parts.append(page.hanging([(mark(Level.WARNING), [(failed, "")])], 2))
    for finding in findings:
        parts.append(page.hanging([(mark(finding.level), _in_words(finding))], 2))
        if everything and finding.facts:
            parts += _facts(finding)
    return parts


def _facts(finding: Finding) -> list[page.Part]:
    """Lay out the facts: in two columns, or one below the other if names are long, as paths are."""
    facts = [(one_line(name), one_line(value)) for name, value in finding.facts.items()]
    if max(len(name) for name, _ in facts) <= _LONGEST:
        return [page.facts(facts, indent=5)]
    return [
        page.hanging([(("", ""), [(name, "dim"), (f"  {value}", "")])], 3)
        for name, value in facts
    ]


def _in_words(finding: Finding) -> Sequence[page.Cell]:
    about = [(one_line(finding.about), "bold"), (": ", "")] if finding.about else []
    proof = [(f"\n{one_line(finding.proof)}", "bold")] if finding.proof else []
    step = [(f"\n{one_line(finding.step)}", "dim")] if finding.step else []
    return [*about, (one_line(finding.what), ""), *proof, *step]
