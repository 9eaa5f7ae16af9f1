"""A visit as one page that asks nobody for anything: styles and pictures are in it.

Everything is told in words too; colours and pictures only help. Pictures are drawn for a phone's width and
grow with the page, so that their words stay readable on both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from accel_core._text import clean
from accel_core.doctor.outgoing import Outgoing, Ranked
from accel_core.doctor.records import Examined, Finding, Level

__all__ = ["page"]

#: The style sheet, which is written into the page.
_STYLE = Path(__file__).with_name("page.css")
#: So that a browser would refuse what a finding's text might ask for, had it got through the escaping.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

#: Of the pictures, in pixels at a phone's width.
_WIDTH = 360
_ROW, _BAR = 50, 8
_FOOT = (
    "Written by <code>accel doctor --html</code>. Names of people, hosts and folders, and the values of "
    "other variables, were taken out."
)
_WORDS = {Level.OK: "as it should be", Level.WARNING: "not as it should be", Level.ERROR: "broken"}


def page(outgoing: Outgoing) -> str:
    """The page as HTML."""
    report = outgoing.report
    verdict = f'<p class="verdict {report.level.value}">{_mark(report.level)} {_text(report.verdict)}</p>'
    sections = [f"<header><h1>accel doctor</h1>{verdict}</header>", "<main>"]
    sections.append('<section aria-labelledby="found"><h2 id="found">What was found</h2>')
    sections += map(_topic, report.topics)
    sections.append("</section>")
    if outgoing.ranking:
        sections.append(_ranking(outgoing.ranking))
    sections.append(_times(report.topics, outgoing.ranking))
    sections.append(_facts_section("versions", "Versions", outgoing.versions))
    if outgoing.variables:
        sections.append(_facts_section("variables", "Environment variables", outgoing.variables))
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>accel doctor: {_WORDS[report.level]}</title>",
            f"<style>{_STYLE.read_text(encoding='ascii')}</style>\n</head>\n<body>",
            *sections,
            f"</main>\n<footer>{_FOOT}</footer>\n</body>\n</html>\n",
        ]
    )


def _topic(topic: Examined) -> str:
    wrong = [finding for finding in topic.findings if finding.level is not Level.OK]
    well = [finding for finding in topic.findings if finding.level is Level.OK]
    mark = f'<span class="{topic.level.value}">{_mark(topic.level)}</span>'
    took = f'<span class="quiet">{_seconds(topic.ms)}</span>'
    parts = [f'<div class="card"><h3>{mark} {_text(topic.title)} {took}</h3>']
    if topic.failed:
        parts.append(f'<p class="warning">This could not be looked into: {_text(topic.failed)}</p>')
    if wrong:
        parts.append(f"<ul>{''.join(map(_finding, wrong))}</ul>")
    if well:
        count = f"{len(well)} as {'it' if len(well) == 1 else 'they'} should be"
        parts.append(f"<details><summary>{count}</summary><ul>{''.join(map(_finding, well))}</ul></details>")
    return "".join([*parts, "</div>"])


def _finding(finding: Finding) -> str:
    about = f"<strong>{_text(finding.about)}</strong>: " if finding.about else ""
    step = f'<p class="step">Next: {_text(finding.step)}</p>' if finding.step else ""
    facts = _list(finding.facts) if finding.facts else ""
    mark = f'<span class="{finding.level.value}">{_mark(finding.level)}</span>'
    return f"<li>{mark} {about}{_text(finding.what)}{step}{facts}</li>"


def _facts_section(name: str, title: str, facts: Mapping[str, str]) -> str:
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{_list(facts)}</section>'


def _list(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in facts.items())
    return f"<dl>{rows}</dl>"


# --- pictures ------------------------------------------------------------------------------------------


def _ranking(rows: Sequence[Ranked]) -> str:
    """The backends from the highest rank down, each with a bar as long as its priority."""
    most = max(1, *(abs(row.priority) for row in rows))
    parts = []
    for rank, row in enumerate(rows):
        top = rank * _ROW
        kind = "ok" if row.usable else "error" if row.failed else "quiet"
        sign = "✓ " if row.usable else "✗ " if row.failed else ""
        chosen = ", chosen" if row.chosen else ""
        length = (_WIDTH - 24) * max(0, row.priority) / most
        # The name of a distribution may be long: what is cut here stands in the table.
        name = f'<tspan class="strong">{_text(_cut(row.name, 18))}</tspan>'
        origin = f'<tspan class="small">{_text(_cut(row.distribution, 22))}</tspan>'
        parts += [
            _words(0, top + 17, f"{rank + 1}", "small"),
            f'<text x="24" y="{top + 17}">{name} {origin}</text>',
            _words(_WIDTH, top + 17, str(row.priority), "small", ends=True),
            _bar(24, top + 23, _WIDTH - 24, "track"),
            _bar(24, top + 23, max(2.0, length), kind),
            _words(24, top + 43, f"{sign}{row.status}{chosen}", kind),
        ]
    told = "; ".join(f"{i}. {row.name}: {row.status}" for i, row in enumerate(rows, 1))
    chosen_name = next((row.name for row in rows if row.chosen), "nothing")
    titles = ("Rank", "Backend", "Distribution", "Priority", "Verdict", "Probed in")
    table = [
        (str(i), row.name, row.distribution, str(row.priority), row.status, _seconds(row.ms))
        for i, row in enumerate(rows, 1)
    ]
    return (
        '<section aria-labelledby="ranking"><h2 id="ranking">Ranking</h2>'
        "<p>The first that is usable is chosen; bars are priorities.</p>"
        + _svg("ranking-picture", f"Backends by rank; {chosen_name} is chosen", told, len(rows) * _ROW, parts)
        + f"<details><summary>The same as a table</summary>{_table(titles, table)}</details></section>"
    )


class _Time(NamedTuple):
    title: str
    ms: float


def _times(topics: Iterable[Examined], ranking: Iterable[Ranked]) -> str:
    """How long each topic took, and below it each probe; topics run side by side."""
    took = [_Time(topic.title, topic.ms) for topic in topics]
    took += [_Time(f"probe of {row.name}", row.ms) for row in ranking if row.ms >= 1]
    if not took:
        return ""
    longest = max(1.0, *(time.ms for time in took))
    height, parts = 34, []
    for place, (title, ms) in enumerate(took):
        top = place * height
        parts += [
            _words(0, top + 14, _cut(title, 44), ""),
            _words(_WIDTH, top + 14, _seconds(ms), "small", ends=True),
            _bar(0, top + 19, _WIDTH, "track"),
            _bar(0, top + 19, max(2.0, _WIDTH * ms / longest), "bar"),
        ]
    told = "; ".join(f"{title}: {_seconds(ms)}" for title, ms in took)
    return (
        '<section aria-labelledby="time"><h2 id="time">Time</h2>'
        "<p>Topics and probes run side by side.</p>"
        + _svg("time-picture", "How long each topic and probe took", told, len(took) * height, parts)
        + "</section>"
    )


def _svg(name: str, title: str, told: str, height: int, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{name}-title {name}-told">'
        f'<title id="{name}-title">{_text(title)}</title><desc id="{name}-told">{_text(told)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _bar(left: float, top: float, width: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{left}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="3"/>'


def _words(left: float, bottom: float, text: str, kind: str, *, ends: bool = False) -> str:
    anchor = ' text-anchor="end"' if ends else ""
    return f'<text class="{kind}" x="{left}" y="{bottom}"{anchor}>{_text(text)}</text>'


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Iterable[str], kind: str) -> Iterator[str]:
        yield "<tr>"
        yield from (f"<{kind}>{_text(cell)}</{kind}>" for cell in cells)
        yield "</tr>"

    body = "".join(part for row in rows for part in line(row, "td"))
    return f"<table><thead>{''.join(line(titles, 'th'))}</thead><tbody>{body}</tbody></table>"


def _mark(level: Level) -> str:
    """The sign, which screen readers are told in words."""
    return f'<span role="img" aria-label="{_WORDS[level]}">{level.mark}</span>'


def _seconds(ms: float) -> str:
    if ms < 1:
        return "below 1 ms"
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1e3:.1f} s"


def _cut(text: str, most: int) -> str:
    line = clean(text)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _text(text: str) -> str:
    return escape(clean(text))
