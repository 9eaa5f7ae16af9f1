"""Text from outside, made safe to print: metadata of plugins, errors of vendors.

Such text may contain anything. An escape character could move the cursor, rename the
window or overwrite the output; a line end could add lines that look like accel's.
"""

from collections.abc import Iterable
from difflib import get_close_matches

#: Characters that `one_line` keeps.
_MAX_LINE = 4000
#: Characters that `short_repr` keeps.
_MAX_REPR = 200


def one_line(text: str) -> str:
    """Return `text` on one line, with control characters escaped and a very long text
    cut.
    """
    line = " ".join(text[:_MAX_LINE].split())
    if len(text) > _MAX_LINE:
        line += "…"
    return escape_control_chars(line)


def strip_period(text: str) -> str:
    """Return `text` without the full stop at its end, for use within a sentence; three
    dots stay.
    """
    if text.endswith(".") and not text.endswith(".."):
        return text[:-1]
    return text


def escape_control_chars(text: str) -> str:
    """Return `text` with control characters escaped, except line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(map(_escape, text))


def _escape(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return ascii(character)[1:-1]


def short_repr(value: object) -> str:
    """Return `repr(value)`, shortened, for an error about a plugin's result; the name
    of its type if it has no `repr`.
    """
    try:
        text = repr(value)
    except Exception:  # 10**5000 has none, and a plugin's class may raise anything
        return f"of {type(value).__name__}"
    if len(text) > _MAX_REPR:
        return f"{text[:_MAX_REPR]}…"
    return text


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `" Did you mean 'npu'?"` if `name` is close to one of `names`; else an
    empty text.
    """
    close = get_close_matches(name.lower(), list(names), n=1)
    if not close:
        return ""
    return f" Did you mean {close[0]!r}?"
