"""Pages to text, by rich: tables that fill a terminal, or lines of any length for a pipe."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accel_core._text import printable
from accel_core.cli import page
from accel_core.cli.page import Cell, Row

_Colours: TypeAlias = 'Literal["auto", "truecolor"] | None'

__all__ = ["FORMS", "exported", "to_text"]

#: The kinds of file that a page can be exported as, by the end of their names.
FORMS = (".svg", ".html", ".txt")
#: The width of an exported page, in columns, where nobody says another.
_EXPORTED = 100

#: Spaces between columns.
_GAP = 2
#: The least width at which the last column stands beside the others, not below them.
_LAST = 32
#: A column is never folded to less.
_COLUMN = 8
#: The width of a page that has no limit.
_ENDLESS = 10_000


def to_text(parts: Iterable[page.Part], width: int | None, *, in_colour: bool) -> str:
    """The parts as text of at most `width` columns (`None`: no limit), with escape codes or without."""
    text = io.StringIO()
    _print(parts, width, _console(text, width, "auto" if in_colour else None))
    # rich fills each line up to the width, which would wrap in any narrower window.
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def exported(parts: Iterable[page.Part], form: str, title: str, width: int | None) -> str:
    """The page as a file of one of `FORMS`: a picture of a terminal, or a page, in colour; or text."""
    width = width or _EXPORTED
    if form == ".txt":
        return f"{to_text(parts, width, in_colour=False)}\n"
    console = _console(io.StringIO(), width, "truecolor", record=True)
    _print(parts, width, console)
    if form == ".html":
        return console.export_html(inline_styles=True)
    # Without the fonts that it would ask a server for: the reader's own monospaced one serves.
    return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=title), flags=re.DOTALL)


def _console(file: io.StringIO, width: int | None, colours: _Colours, *, record: bool = False) -> Console:
    return Console(
        file=file,
        width=width or _ENDLESS,
        force_terminal=colours is not None,
        color_system=colours,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        record=record,
    )


def _print(parts: Iterable[page.Part], width: int | None, console: Console) -> None:
    for part in parts:
        for renderable in _rendered(part, width):
            console.print(renderable)


def _rendered(part: page.Part, width: int | None) -> Iterator[RenderableType]:
    if isinstance(part, page.Paragraph):
        yield Text.assemble(*map(_safe, part.cells))
    elif isinstance(part, page.Heading):
        yield Text(f"\n{printable(part.text)}", style="bold")
    elif isinstance(part, page.Facts):
        yield _facts(part)
    elif isinstance(part, page.Bullets):
        yield _hanging([(("-", ""), item) for item in part.items], 2)
    elif isinstance(part, page.Marked):
        yield _hanging([(part.mark, part.paragraph)], part.indent)
    else:
        yield from _table(part, width)


def _facts(facts: page.Facts) -> Padding:
    table = _grid()
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.rows:
        if value:
            table.add_row(printable(name), printable(value))
    return Padding(table, (0, 0, 0, facts.indent), expand=False)


def _hanging(items: Iterable[tuple[Cell, page.Paragraph]], indent: int) -> Padding:
    """Paragraphs, each on its sign."""
    table = _grid()
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    for sign, item in items:
        table.add_row(_text(sign), Text.assemble(*map(_safe, item.cells)))
    return Padding(table, (0, 0, 0, indent), expand=False)


def _table(table: page.Table, width: int | None) -> list[RenderableType]:
    titles, rows = table
    columns = len(titles) - 1
    widths = [max(len(titles[i]), *(_cells(row[i][0]) for row in rows)) for i in range(columns)]
    if width is None:
        return [_wide(titles, rows, widths, separator="; ")]
    room = width - sum(widths) - _GAP * columns
    if room >= _LAST:
        return [*_in_room(titles, rows, widths, room)]
    return _narrow(titles, rows, _shrunk(widths, width - _GAP * (columns - 1)))


def _wide(titles: Sequence[str], rows: Sequence[Row], widths: Sequence[int], separator: str) -> Table:
    table = _grid(*widths)
    table.add_column(overflow="fold")
    table.add_row(*(Text(title, style="bold") for title in titles))
    for row in rows:
        table.add_row(*map(_text, row[: len(widths)]), _prose(row[len(widths) :], separator))
    return table


def _in_room(
    titles: Sequence[str], rows: Sequence[Row], widths: Sequence[int], room: int
) -> Iterator[RenderableType]:
    """The table with `room` for its prose; a line of it with a word that is longer, a URL, stands below."""
    all_widths = [*widths, room]
    yield _row((Text(title, style="bold") for title in titles), all_widths)
    for row in rows:
        columns, prose = row[: len(widths)], row[len(widths) :]
        below = [cell for cell in prose[1:] if max(map(_cells, cell[0].split()), default=0) > room]
        beside = [cell for cell in prose if cell not in below]
        yield _row([*map(_text, columns), _prose(beside, "\n")], all_widths)
        for cell in below:
            yield Padding(_text(cell), (0, 0, 0, 4), expand=False)


def _narrow(titles: Sequence[str], rows: Sequence[Row], widths: Sequence[int]) -> list[RenderableType]:
    parts: list[RenderableType] = [_row((Text(title, style="bold") for title in titles[:-1]), widths)]
    for row in rows:
        parts.append(_row(map(_text, row[: len(widths)]), widths))
        prose = _prose(row[len(widths) :], "\n")
        if prose:
            parts.append(Padding(prose, (0, 0, 0, 4), expand=False))
    return parts


def _prose(cells: Iterable[Cell], separator: str) -> Text:
    return Text(separator).join(_text(cell) for cell in cells if cell[0])


def _row(cells: Iterable[Text], widths: Sequence[int]) -> Table:
    table = _grid(*widths)
    table.add_row(*cells)
    return table


def _grid(*widths: int) -> Table:
    """A table without lines, with columns of these widths; what is longer is folded, never cut."""
    table = Table.grid(padding=(0, _GAP, 0, 0))
    for width in widths:
        table.add_column(width=width, overflow="fold")
    return table


def _shrunk(widths: Sequence[int], room: int) -> list[int]:
    """The widths, the widest made narrower until all fit into `room`."""
    fitted = list(widths)
    while sum(fitted) > room and max(fitted) > _COLUMN:
        fitted[fitted.index(max(fitted))] -= 1
    return fitted


def _text(cell: Cell) -> Text:
    return Text(*_safe(cell))


def _safe(cell: Cell) -> Cell:
    """What a page shows is others' words too; its escape codes are ours alone."""
    return printable(cell[0]), cell[1]


def _cells(text: str) -> int:
    return Text(text).cell_len
