"""Texts of others, made safe for a terminal: a plugin's metadata or a vendor's exception may hold anything.

An escape character would let them move the cursor, rename the window or write over what we say, and a line
end would let them write lines in our name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["Shown", "clean", "html_table", "printable", "shown"]

#: Characters of what is wrong that an error repeats.
_LONGEST = 200


def clean(text: str) -> str:
    """`text` on one line, with escapes in the place of what a terminal would obey."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """The same of a text of several lines, which are ours to have; tabs stay too."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text
    )


def shown(value: object) -> str:
    """A plugin's answer as text for an error: shortened, and safe for objects without a `repr`."""
    try:
        text = repr(value)
    except Exception:  # `10**5000` has none
        return f"of {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class Shown(str):
    """A text that notebooks show as it is: with its line ends, in one width."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return f"<pre>{_escaped(self)}</pre>"


def html_table(*rows: Iterable[object]) -> str:
    """Return a table for notebooks; the first row is its head."""
    cells = [[_escaped(printable(str(cell))) for cell in row] for row in rows]
    head, *body = (f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in cells)
    return f"<table>{head.replace('td>', 'th>')}{''.join(body)}</table>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
