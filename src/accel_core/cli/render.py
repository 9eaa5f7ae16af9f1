"""Pages to text: tables that fill a terminal, or lines of any length for a pipe."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, zip_longest

import click

from accel_core.cli import page
from accel_core.cli.page import Cell, Row
from accel_core.errors import printable

__all__ = ["to_text"]

#: Spaces between columns.
_GAP = 2
#: The least width at which the last column stands beside the others, not below them.
_LAST = 32
#: A column is never folded to less.
_COLUMN = 4
#: A line as characters, each with its style.
_Line = list[Cell]


def to_text(parts: Iterable[page.Part], width: int | None, *, in_colour: bool) -> str:
    """The parts as text of at most `width` columns (`None`: no limit), with escape codes or without."""
    lines = (line for part in parts for line in _lines(part, width))
    return "\n".join(_written(line, in_colour) for line in lines)


def _lines(part: page.Part, width: int | None) -> Iterable[_Line]:
    room = sys.maxsize if width is None else width
    if isinstance(part, page.Paragraph):
        return _wrapped(part.cells, room)
    if isinstance(part, page.Heading):
        return [[], *_wrapped([(part.text, "bold")], room)]
    if isinstance(part, page.Facts):
        rows = [([(name, "dim")], [(value, "")]) for name, value in part.rows if value]
        return _hanging(rows, part.indent, room)
    if isinstance(part, page.Bullets):
        return _hanging([([("-", "")], item.cells) for item in part.items], 2, room)
    if isinstance(part, page.Marked):
        return _hanging([([part.mark], part.paragraph.cells)], part.indent, room)
    return _table(part, width)


def _hanging(
    rows: Sequence[tuple[Sequence[Cell], Sequence[Cell]]], indent: int, room: int
) -> Iterator[_Line]:
    """Rows of a name, or a sign, and words that wrap beside it."""
    first = max((_columns(_characters(name)) for name, _ in rows), default=0)
    for name, words in rows:
        for line in _beside([name, words], [first, max(_COLUMN, room - indent - first - _GAP)]):
            yield [*_spaces(indent), *line]


def _table(table: page.Table, width: int | None) -> Iterator[_Line]:
    titles, rows = table
    count = len(titles) - 1
    widths = [
        max(_columns(_characters([cell])) for cell in ((titles[i], ""), *(row[i] for row in rows)))
        for i in range(count)
    ]
    head: Row = [(title, "bold") for title in titles]
    room = sys.maxsize if width is None else width - sum(widths) - _GAP * count
    if room < _LAST and width is not None:
        widths = _shrunk(widths, width - _GAP * (count - 1))
        yield from _beside([[cell] for cell in head[:count]], widths)
        for row in rows:
            yield from _beside([[cell] for cell in row[:count]], widths)
            yield from _below(row[count:], width)
        return
    yield from _beside([[cell] for cell in head], [*widths, room])
    for row in rows:
        prose = [cell for cell in row[count:] if cell[0]]
        # A line of it with a word that is longer than the room, a URL, stands below.
        below = [cell for cell in prose[1:] if width is not None and _longest_word(cell) > room]
        beside = _joined([cell for cell in prose if cell not in below], "; " if width is None else "\n")
        yield from _beside([*([cell] for cell in row[:count]), beside], [*widths, room])
        yield from _below(below, width or room)


def _below(cells: Iterable[Cell], width: int) -> Iterator[_Line]:
    for cell in cells:
        for line in _wrapped([cell], width - 4) if cell[0] else ():
            yield [*_spaces(4), *line]


def _joined(cells: Sequence[Cell], separator: str) -> list[Cell]:
    return [part for i, cell in enumerate(cells) for part in ([(separator, ""), cell] if i else [cell])]


def _longest_word(cell: Cell) -> int:
    return max((_columns([(c, "") for c in word]) for word in cell[0].split()), default=0)


def _shrunk(widths: Sequence[int], room: int) -> list[int]:
    """The widths, the widest made narrower until all fit into `room`."""
    fitted = list(widths)
    while sum(fitted) > room and max(fitted) > _COLUMN:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _beside(columns: Sequence[Sequence[Cell]], widths: Sequence[int]) -> Iterator[_Line]:
    """Texts side by side, each in its own width; what is longer goes on in the next line, never cut."""
    folded = [list(_wrapped(cells, width)) for cells, width in zip(columns, widths, strict=True)]
    for parts in zip_longest(*folded, fillvalue=[]):
        line: _Line = []
        before = 0
        for part, width in zip(parts, widths, strict=True):
            line += [*_spaces(before - _columns(line)), *part]
            before += width + _GAP
        yield line


def _wrapped(cells: Iterable[Cell], width: int) -> Iterator[_Line]:
    """The text in lines of at most `width` columns, broken at spaces; a longer word is folded."""
    rest = _characters(cells)
    while True:
        end, column, space = 0, 0, -1
        while end < len(rest) and rest[end][0] != "\n":
            column += _columns(rest[end : end + 1])
            if column > width and rest[end][0] != " ":
                break
            if rest[end][0] == " ":
                space = end
            end += 1
        if end == len(rest):
            yield rest
            return
        if rest[end][0] != "\n":
            end = space if space > 0 else max(1, end)
        yield rest[:end]
        rest = rest[end + (rest[end][0] in " \n") :]


def _characters(cells: Iterable[Cell]) -> _Line:
    """Each character with its style; others' words lose their escape codes."""
    return [(character, style) for text, style in cells for character in printable(text)]


def _columns(line: Iterable[Cell]) -> int:
    """How many columns a terminal needs for it."""
    return sum(
        1 if c.isascii() else 0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c, _ in line
    )


def _spaces(count: int) -> _Line:
    return [(" ", "")] * count


def _written(line: _Line, in_colour: bool) -> str:
    while line and line[-1][0] == " ":
        line = line[:-1]
    groups = ((style, "".join(c for c, _ in cells)) for style, cells in groupby(line, lambda cell: cell[1]))
    return "".join(_styled(text, style) if in_colour and style else text for style, text in groups)


def _styled(text: str, style: str) -> str:
    words = style.split()
    colour = next((word for word in words if word not in ("bold", "dim")), None)
    return click.style(text, fg=colour, bold="bold" in words or None, dim="dim" in words or None)
