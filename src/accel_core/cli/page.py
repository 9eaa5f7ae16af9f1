"""Format the human-readable pages that a command prints, wrapped to the terminal's width.

A page is a list of parts. The functions `paragraph`, `heading`, `facts`, `bullets`,
`table` and `two_columns` make parts, and `to_text` renders them. A part is a function that
returns its lines for a given width.
"""

import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import TypeAlias

import click

from accel_core.packages import distribution_of_module
from accel_core.text import escape_control_chars
from accel_core.verdict import Status, Verdict

#: A text and its style, such as `("usable", "bold green")`.
Cell: TypeAlias = "tuple[str, str]"
Row: TypeAlias = "Sequence[Cell]"
#: The characters of a line, each with its style.
_Line: TypeAlias = "list[Cell]"
#: A part of a page: a function that returns the part's lines for a width in columns.
Part: TypeAlias = "Callable[[int], Iterable[_Line]]"

#: The number of spaces between columns.
_GAP = 2
#: The smallest width to which a column is narrowed.
_MIN_COLUMN = 4
#: The smallest width of a table's last column beside the other columns.
_MIN_PROSE = 32
#: The width of a page without a limit.
_UNLIMITED = sys.maxsize


def paragraph(*cells: Cell) -> Part:
    """Return a paragraph that consists of the given texts, wrapped to the page's width.
    Each text has its own style. Without texts, the paragraph is an empty line.
    """
    return lambda width: _wrap(cells, width)


def heading(text: str) -> Part:
    """Return a heading, preceded by an empty line."""
    return lambda width: [[], *_wrap([(text, "bold")], width)]


def facts(rows: Iterable[tuple[str, str]], indent: int = 2) -> Part:
    """Return two columns, names and values, and wrap each value within its column.

    Rows without a value are omitted.
    """
    cells = [((name, "dim"), [(value, "")]) for name, value in rows if value]
    return two_columns(cells, indent)


def bullets(paragraphs: Iterable[Row]) -> Part:
    """Return a bulleted list of paragraphs, each preceded by a dash."""
    return two_columns([(("-", ""), cells) for cells in paragraphs], 2)


def two_columns(rows: Sequence[tuple[Cell, Row]], indent: int) -> Part:
    """Return two columns: a name or a sign (✓, ! or ✗), and text that wraps within its column."""
    longest = 0
    for (name, _style), _text in rows:
        longest = max(longest, len(escape_control_chars(name)))
    first_width = indent + longest
    indentation: Cell = (" " * indent, "")

    def lines(width: int) -> Iterator[_Line]:
        widths = [first_width, width - first_width - _GAP]
        for name, text in rows:
            yield from _side_by_side([[indentation, name], text], widths)

    return lines


def table(titles: Sequence[str], rows: Sequence[Row]) -> Part:
    """Return a table whose last column contains longer text, the prose.

    On a wide page, the prose is to the right of the other columns. On a narrow page,
    the prose is below each row. If a row has more cells than there are titles, each
    further cell begins on a new line.
    """
    columns_before_prose = len(titles) - 1
    header = [(title, "bold") for title in titles]

    def lines(width: int) -> Iterator[_Line]:
        widths = _column_widths([header, *rows], columns_before_prose)
        prose_width = width - sum(widths) - _GAP * columns_before_prose
        if prose_width >= _MIN_PROSE:
            yield from _wide_table([header, *rows], widths, prose_width, width)
        else:
            widths = _narrowed_columns(widths, width)
            header_without_prose = header[:columns_before_prose]
            yield from _narrow_table([header_without_prose, *rows], widths, width)

    return lines


def to_text(parts: Iterable[Part], width: int | None, *, in_colour: bool) -> str:
    """Render the parts of a page as text that is at most `width` columns wide. `None`
    means no limit.
    """
    rendered: list[str] = []
    for part in parts:
        lines = part(width or _UNLIMITED)
        rendered += [_render(line, in_colour=in_colour) for line in lines]
    return "\n".join(rendered)


# --- Tables -------------------------------------------------------------------------


def _column_widths(rows: Sequence[Row], columns: int) -> list[int]:
    """Return the length of the longest text in each of the first `columns` columns."""
    widths = []
    for column in range(columns):
        width = 0
        for row in rows:
            text, _style = row[column]
            width = max(width, len(escape_control_chars(text)))
        widths.append(width)
    return widths


def _narrowed_columns(widths: Sequence[int], width: int) -> list[int]:
    """Return the widths with the widest columns narrowed until all of them fit into
    `width`, if possible.
    """
    narrowed = list(widths)
    gaps = _GAP * (len(widths) - 1)
    while sum(narrowed) + gaps > width and max(narrowed) > _MIN_COLUMN:
        widest_column = narrowed.index(max(narrowed))
        narrowed[widest_column] -= 1
    return narrowed


def _wide_table(
    rows: Sequence[Row], widths: list[int], prose_width: int, width: int
) -> Iterator[_Line]:
    """Yield the lines of a table with the prose beside the other columns."""
    # On a page without a limit, each row is one line, so that `grep` finds whole rows.
    separator: Cell = ("; " if width == _UNLIMITED else "\n", "")
    for row in rows:
        columns, cells_with_text = _split_row(row, len(widths))
        prose: list[Cell] = []
        below = []
        for cell in cells_with_text:
            if not prose:
                prose = [cell]
            elif _longest_word(cell) > prose_width:
                # A long word, such as a URL, would be broken in the prose column.
                below.append(cell)
            else:
                prose += [separator, cell]
        yield from _side_by_side([*columns, prose], [*widths, prose_width])
        yield from _indented(below, width)


def _narrow_table(
    rows: Sequence[Row], widths: list[int], width: int
) -> Iterator[_Line]:
    """Yield the lines of a table with the prose below each row."""
    for row in rows:
        columns, prose = _split_row(row, len(widths))
        yield from _side_by_side(columns, widths)
        yield from _indented(prose, width)


def _split_row(row: Row, columns: int) -> tuple[list[Row], list[Cell]]:
    """Return the first `columns` cells of a row, and the remaining cells that have text."""
    # In each of the first columns, the text consists of one cell.
    first_texts: list[Row] = [[cell] for cell in row[:columns]]
    remaining_cells = []
    for text, style in row[columns:]:
        if text.strip():
            remaining_cells.append((text, style))
    return first_texts, remaining_cells


def _longest_word(cell: Cell) -> int:
    text, _style = cell
    return max(len(word) for word in text.split())


def _indented(cells: Sequence[Cell], width: int) -> Iterator[_Line]:
    """Yield the lines of each cell, indented. Each cell begins on a new line."""
    indent = 2
    empty_column: list[Cell] = []  # only indents the text
    text_width = width - indent - _GAP
    for cell in cells:
        yield from _side_by_side([empty_column, [cell]], [indent, text_width])


# --- Lines --------------------------------------------------------------------------


def _side_by_side(columns: Sequence[Row], widths: Sequence[int]) -> Iterator[_Line]:
    """Yield lines with each text in a separate column, wrapped and never cut."""
    space: Cell = (" ", "")
    wrapped_columns = []
    for column, width in zip(columns, widths, strict=True):
        wrapped_columns.append(_wrap(column, width))
    # A column with fewer lines than another is continued with empty lines.
    for parts in zip_longest(*wrapped_columns, fillvalue=[]):
        line: _Line = []  # one item for each character
        start_of_column = 0
        for part, width in zip(parts, widths, strict=True):
            padding = start_of_column - len(line)
            line += [space] * padding
            line += part
            start_of_column += width + _GAP
        yield line


def _wrap(cells: Row, width: int) -> Iterator[_Line]:
    """Break the text at spaces into lines of at most `width` columns.

    A word that is longer than a line is broken too.
    """
    text = ""
    styles: list[str] = []  # one for each visible character of `text`
    for cell_text, cell_style in cells:
        escaped = escape_control_chars(cell_text)
        text += escaped
        # textwrap changes whitespace, so styles are stored for other characters only.
        visible = re.sub(r"[ \t\n]", "", escaped)
        styles += [cell_style] * len(visible)
    remaining_styles = iter(styles)
    column = max(width, _MIN_COLUMN)
    for line in text.split("\n"):
        wrapped = textwrap.wrap(line, column, break_on_hyphens=False)
        if not wrapped:
            wrapped = [""]  # an empty line stays a line
        for part in wrapped:
            yield _with_styles(part, remaining_styles)


def _with_styles(text: str, styles: Iterator[str]) -> _Line:
    """Return the characters of `text`, each with its style.

    `styles` has a style for each character that is not a space. A space gets the style
    of the character before it.
    """
    line = []
    style = ""
    for character in text:
        if character != " ":  # A space keeps the style of the character before it.
            style = next(styles)
        line.append((character, style))
    return line


def _render(line: _Line, *, in_colour: bool) -> str:
    """Join the characters of a line, with escape codes if `in_colour` is set."""
    rendered = ""
    for style, cells in groupby(line, key=_style_of_cell):
        text = "".join(character for character, _ in cells)
        if in_colour and style:
            text = _with_escape_codes(text, style)
        rendered += text
    return rendered.rstrip()


def _style_of_cell(cell: Cell) -> str:
    _text, style = cell
    return style


def _with_escape_codes(text: str, style: str) -> str:
    """Return `text` with escape codes for `style`: `"bold"`, `"dim"`, a color, or
    several of them.
    """
    words = set(style.split())
    colours = words - {"bold", "dim"}
    # With None, click writes no escape code. With False, it would write one.
    return click.style(
        text,
        fg="".join(colours) or None,
        bold="bold" in words or None,
        dim="dim" in words or None,
    )


# --- Words and styles ---------------------------------------------------------------

#: The heading above packages that break torch's autoload.
AUTOLOAD = "Packages that cause problems at `import torch`"


def style(verdict: Verdict) -> str:
    """Return the style of a backend's status, such as `"green"` for a usable backend."""
    if verdict.usable:
        return "green"
    if verdict.status.is_failure:
        return "red"
    if verdict.status in (Status.NOT_PROBED, Status.BLOCKED):
        return "dim"
    return "yellow"


def vendor_packages(verdict: Verdict) -> list[dict[str, str]]:
    """List the installed packages that can add the backend's device to torch, as plain
    values for JSON. The packages are not imported.
    """
    packages = []
    for module in verdict.vendor_import:
        distribution, version = distribution_of_module(module)
        if distribution:
            packages.append(
                {"module": module, "distribution": distribution, "version": version}
            )
    return packages


def described(verdict: Verdict) -> dict[str, object]:
    """Return a backend's state as plain values for JSON, with the installed packages
    that can add the backend's device to torch.
    """
    return {**verdict.to_dict(), "vendor_packages": vendor_packages(verdict)}


def count(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural, such as `"1 device"` or
    `"8 devices"`.
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"
