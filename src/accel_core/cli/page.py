"""Pages that a command shows to people: lists of the parts below, which `to_text` wraps and styles.

The words and styles that the commands share stand at the end.

A part is a function that gives its lines for a width.
"""

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, zip_longest
from typing import TypeAlias

import click

from accel_core.detection import Status, Verdict
from accel_core.packages import brought_by
from accel_core.text import escape_control_chars

#: A text and its style: `("usable", "bold green")`.
Cell: TypeAlias = "tuple[str, str]"
Row: TypeAlias = "Sequence[Cell]"
#: The characters of a line, each with its style.
_Line: TypeAlias = "list[Cell]"
#: A part of a page: its lines, for a page so wide.
Part: TypeAlias = "Callable[[int], Iterable[_Line]]"

#: Spaces between columns.
_GAP = 2
#: A column is never folded to less.
_COLUMN = 4


def paragraph(*cells: Cell) -> Part:
    """Return a paragraph, wrapped to the page's width; without cells, an empty line."""
    return lambda width: _wrapped(cells, width)


def heading(text: str) -> Part:
    """A heading, after an empty line."""
    return lambda width: [[], *_wrapped([(text, "bold")], width)]


def facts(rows: Iterable[tuple[str, str]], indent: int = 2) -> Part:
    """Return names and values in two columns, each value wrapped in its column; rows without a value are
    omitted.
    """
    return hanging([((name, "dim"), [(value, "")]) for name, value in rows if value], indent)


def bullets(paragraphs: Iterable[Row]) -> Part:
    """Return a list of paragraphs, each behind a dash."""
    return hanging([(("-", ""), cells) for cells in paragraphs], 2)


def table(titles: Sequence[str], rows: Sequence[Row]) -> Part:
    """Return a table whose last column is prose: at the side on a wide page, below each row on a narrow one.

    A cell after the prose is printed on a line of its own.
    """
    count = len(titles) - 1
    head = [(title, "bold") for title in titles]

    def lines(width: int) -> Iterator[_Line]:
        widths = [max(len(escape_control_chars(row[i][0])) for row in (head, *rows)) for i in range(count)]
        room = width - sum(widths) - _GAP * count
        wide = room >= 32  # so wide that the last column stands beside the others, and not below them
        while not wide and sum(widths) + _GAP * (count - 1) > width and max(widths) > _COLUMN:
            widths[widths.index(max(widths))] -= 1  # the widest is folded first
        for row in (head if wide else head[:count], *rows):
            prose = [cell for cell in row[count:] if cell[0].strip()]
            # A line of it with a word that is longer than the room, a URL, stands below.
            below = [c for i, c in enumerate(prose) if not wide or (i and max(map(len, c[0].split())) > room)]
            between = ("\n" if width < sys.maxsize else "; ", "")
            beside = [part for cell in prose if cell not in below for part in (between, cell)][1:]
            yield from _beside([*([cell] for cell in row[:count]), beside], [*widths, room])
            for cell in below:
                yield from _beside([[], [cell]], [2, width - 4])

    return lines


def to_text(parts: Iterable[Part], width: int | None, *, in_colour: bool) -> str:
    """Return the parts as text, at most `width` columns wide (`None`: no limit), with or without colours."""
    lines = (line for part in parts for line in part(width or sys.maxsize))
    return "\n".join(_written(line, in_colour=in_colour) for line in lines)


def hanging(rows: Sequence[tuple[Cell, Row]], indent: int) -> Part:
    """Return rows of a name, or a sign (✓, ! or ✗), and words that wrap beside it."""
    first = indent + max((len(escape_control_chars(name)) for (name, _), _ in rows), default=0)

    def lines(width: int) -> Iterator[_Line]:
        for name, words in rows:
            yield from _beside([[(" " * indent, ""), name], words], [first, width - first - _GAP])

    return lines


def _beside(columns: Sequence[Row], widths: Sequence[int]) -> Iterator[_Line]:
    """Texts side by side, each in its own width; what is longer goes on in the next line, never cut."""
    folded = [_wrapped(cells, width) for cells, width in zip(columns, widths, strict=True)]
    for parts in zip_longest(*folded, fillvalue=[]):
        line: _Line = []
        start = 0
        for part, width in zip(parts, widths, strict=True):
            line += [(" ", "")] * (start - len(line)) + part
            start += width + _GAP
        yield line


def _wrapped(cells: Row, width: int) -> list[_Line]:
    """The text in lines of at most `width` columns, broken at spaces; a longer word is broken itself."""
    text = "".join(escape_control_chars(text) for text, _ in cells)
    styles = iter([style for text, style in cells for c in escape_control_chars(text) if c not in " \t\n"])
    styled: list[_Line] = []
    for written in text.split("\n"):
        for part in textwrap.wrap(written, max(width, _COLUMN), break_on_hyphens=False) or [""]:
            line: _Line = []
            for character in part:
                style = next(styles) if character != " " else line[-1][1] if line else ""
                line.append((character, style))
            styled.append(line)
    return styled


def _written(line: _Line, *, in_colour: bool) -> str:
    groups = ((style, "".join(c for c, _ in cells)) for style, cells in groupby(line, lambda cell: cell[1]))
    return "".join(_styled(text, style) if in_colour and style else text for style, text in groups).rstrip()


def _styled(text: str, style: str) -> str:
    """`text` with escape codes for `"bold"`, `"dim"`, a colour, or several of them."""
    words = set(style.split())
    colour = "".join(words - {"bold", "dim"}) or None
    return click.style(text, fg=colour, bold="bold" in words or None, dim="dim" in words or None)


# --- Words and styles ---------------------------------------------------------------------------------

#: The heading above what torch's autoload spoils.
AUTOLOAD = "Programs that import torch first"


def style(verdict: Verdict) -> str:
    """Return the style of a status: green if usable, red if broken, plain if nothing is there."""
    if verdict.usable:
        return "green"
    if verdict.status.is_failure:
        return "red"
    # Not probed, or blocked by the user: nothing that anybody has to mend.
    return "dim" if verdict.status in (Status.NOT_PROBED, Status.BLOCKED) else "yellow"


def vendor_packages(verdict: Verdict) -> list[dict[str, str]]:
    """Return the installed packages that bring the device into torch, read from their metadata."""
    found = ((module, *brought_by(module)) for module in verdict.vendor_import)
    return [{"module": m, "distribution": name, "version": version} for m, name, version in found if name]


def described(verdict: Verdict) -> dict[str, object]:
    """Return the verdict for JSON, with the versions of the vendor's installed packages."""
    return {**verdict.to_dict(), "vendor_packages": vendor_packages(verdict)}


def count(number: int, noun: str) -> str:
    """`"1 device"`, `"8 devices"`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
