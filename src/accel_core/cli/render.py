"""Text for people, by rich: tables that fill a terminal, or lines of any length for a pipe."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accel_core.cli.output import Output

__all__ = ["Cell", "Row", "bullets", "facts", "heading", "listing", "paragraph", "to_text"]

#: A text and its style.
Cell = tuple[str, str]
Row = Sequence[Cell]

#: Spaces between columns.
_GAP = 2
#: The least width at which the last column stands beside the others, not below them.
_LAST = 44
#: A column is never folded to less.
_COLUMN = 8
#: The width of a page that has no limit.
_ENDLESS = 10_000


def to_text(parts: Iterable[RenderableType], output: Output) -> str:
    """The parts as text for `output`: as wide as it is, in colour where it takes colour."""
    page = io.StringIO()
    console = Console(
        file=page,
        width=output.width or _ENDLESS,
        force_terminal=output.in_colour,
        color_system="auto" if output.in_colour else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    # rich fills each line up to the width, which would wrap in any narrower window.
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def paragraph(*cells: Cell) -> Text:
    """Words that run on, wrapped as wide as the page."""
    return Text.assemble(*cells)


def heading(text: str) -> Text:
    """A heading, after an empty line."""
    return Text(f"\n{text}", style="bold")


def facts(rows: Iterable[tuple[str, str]]) -> Padding:
    """Names and values in two columns; values wrap in their own, and a row without value is left out."""
    table = _grid()
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, value)
    return Padding(table, (0, 0, 0, 2), expand=False)


def bullets(items: Iterable[tuple[str, Text]]) -> Padding:
    """Paragraphs that hang on a mark each."""
    table = _grid()
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    for mark, item in items:
        table.add_row(mark, item)
    return Padding(table, (0, 0, 0, 2), expand=False)


def listing(titles: Sequence[str], rows: Sequence[Row], output: Output) -> list[RenderableType]:
    """A table whose last column is prose: beside the others on a wide page, below each row on a narrow one.

    The last cell of a row is prose; a cell after it, where there is one, is prose for a line of its own.
    """
    columns = len(titles) - 1
    widths = [max(len(titles[i]), *(_cells(row[i][0]) for row in rows)) for i in range(columns)]
    if output.width is None:
        return [_wide(titles, rows, widths, separator="; ")]
    if sum(widths) + _GAP * columns + _LAST <= output.width:
        return [_wide(titles, rows, widths, separator="\n")]
    return _narrow(titles, rows, _shrunk(widths, output.width - _GAP * (columns - 1)))


def _wide(titles: Sequence[str], rows: Sequence[Row], widths: Sequence[int], separator: str) -> Table:
    table = _grid(*widths)
    table.add_column(overflow="fold")
    table.add_row(*(Text(title, style="bold") for title in titles))
    for row in rows:
        table.add_row(*map(_text, row[: len(widths)]), _prose(row[len(widths) :], separator))
    return table


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
    return Text(cell[0], style=cell[1])


def _cells(text: str) -> int:
    return Text(text).cell_len
