"""Pages that a command shows to people, as data: a page is a list of the parts below.

This module does not import rich, so building a page is cheap: `render` turns it into text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

__all__ = ["Bullets", "Cell", "Facts", "Heading", "Marked", "Paragraph", "Part", "Row", "Table", "paragraph"]

#: A text and its style, in rich's words: `("usable", "bold green")`.
Cell: TypeAlias = "tuple[str, str]"
Row: TypeAlias = "Sequence[Cell]"


class Paragraph(NamedTuple):
    """Words that run on, wrapped as wide as the page; without cells an empty line."""

    cells: Sequence[Cell] = ()


class Heading(NamedTuple):
    """A heading, after an empty line."""

    text: str


class Facts(NamedTuple):
    """Names and values in two columns; values wrap in their own, and a row without value is left out."""

    rows: Iterable[tuple[str, str]]
    #: Columns before the names.
    indent: int = 2


class Marked(NamedTuple):
    """A paragraph that hangs on a sign of its own: ✓, ! or ✗."""

    mark: Cell
    paragraph: Paragraph
    #: Columns before the sign.
    indent: int = 0


class Bullets(NamedTuple):
    """Paragraphs that hang on a dash each."""

    items: Iterable[Paragraph]


class Table(NamedTuple):
    """A table whose last column is prose: beside the others on a wide page, below each row on a narrow one.

    The last cell of a row is prose; a cell after it, where there is one, is prose for a line of its own.
    """

    titles: Sequence[str]
    rows: Sequence[Row]


Part: TypeAlias = "Paragraph | Heading | Facts | Marked | Bullets | Table"


def paragraph(*cells: Cell) -> Paragraph:
    """A paragraph of these cells."""
    return Paragraph(cells)
