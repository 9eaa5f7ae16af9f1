"""A visit as Markdown for a bug report.

Texts from vendors appear only in fenced blocks, where they cannot act as links, mentions or markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from accel_core.text import one_line
from accel_tools.doctor.outgoing import Outgoing, Ranked
from accel_tools.doctor.records import Examined, Finding, Level

__all__ = ["markdown"]

_FOOT = (
    "Written by `accel doctor --issue`. Names of people, hosts and folders, and the values of other "
    "variables, were removed."
)


def markdown(outgoing: Outgoing) -> str:
    """Return the report as Markdown for GitHub and GitLab, with a newline at its end."""
    lines = [
        "### accel doctor",
        "",
        *_block([one_line(outgoing.report.verdict)]),
        "",
        "**Versions**",
        "",
        *_block(_table(outgoing.versions)),
    ]
    for topic in outgoing.report.topics:
        lines += ["", *_topic(topic)]
    if outgoing.ranking:
        lines += [
            "",
            *_folded(
                "Ranking", [_place(*row) for row in enumerate(outgoing.ranking, 1)]
            ),
        ]
    if outgoing.variables:
        lines += ["", *_folded("Environment variables", _table(outgoing.variables))]
    lines += [
        "",
        _FOOT,
        "",
    ]
    return "\n".join(lines)


def _topic(topic: Examined) -> Iterator[str]:
    yield f"**{topic.level.mark} {_title(topic.title)}** ({topic.ms / 1e3:.1f} s)"
    wrong = [finding for finding in topic.findings if finding.level is not Level.OK]
    failed = (
        [f"! this could not be examined: {one_line(topic.failed)}"]
        if topic.failed
        else []
    )
    if wrong or failed:
        yield ""
        yield from _block(
            [*failed, *(line for finding in wrong for line in _finding(finding))]
        )
    well = [finding for finding in topic.findings if finding.level is Level.OK]
    if well:
        yield ""
        yield from _folded(
            "as it should be", (line for finding in well for line in _finding(finding))
        )


def _finding(finding: Finding) -> Iterator[str]:
    about = f"{one_line(finding.about)}: " if finding.about else ""
    yield f"{finding.level.mark} {about}{one_line(finding.what)} [{one_line(finding.code)}]"
    if finding.step:
        yield f"    next: {one_line(finding.step)}"
    yield from (f"    {line}" for line in _table(finding.facts))


def _place(rank: int, row: Ranked) -> str:
    chosen = ", chosen" if row.chosen else ""
    return one_line(
        f"{rank}. {row.name} ({row.distribution}), {row.priority}: {row.status}{chosen}"
    )


def _table(rows: Mapping[str, str]) -> list[str]:
    names = [one_line(name) for name in rows]
    width = max(map(len, names), default=0)
    return [
        f"{name:{width}}  {one_line(value)}"
        for name, value in zip(names, rows.values(), strict=True)
    ]


def _title(text: str) -> str:
    return re.sub(r"[^\w ,.()-]", "", text)


def _folded(title: str, lines: Iterable[str]) -> list[str]:
    return [
        f"<details><summary>{title}</summary>",
        "",
        *_block(lines),
        "",
        "</details>",
    ]


def _block(lines: Iterable[str]) -> list[str]:
    """A fenced block, with a fence longer than any in it."""
    held = list(lines)
    longest = max(
        (len(run) for line in held for run in re.findall(r"~+", line)), default=0
    )
    fence = "~" * max(3, longest + 1)
    return [f"{fence}text", *held, fence]
