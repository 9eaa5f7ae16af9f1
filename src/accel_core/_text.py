"""Texts of others, made safe for a terminal: a plugin's metadata or a vendor's exception may hold anything.

An escape character would let them move the cursor, rename the window or write over what we say, and a line
end would let them write lines in our name.
"""

from __future__ import annotations

__all__ = ["clean", "printable", "shown"]

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
