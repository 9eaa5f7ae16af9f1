"""Make third-party text safe to print, such as plugins' metadata and vendors' errors.

Such text may contain any character. An escape character could move the cursor, rename
the window or overwrite the output. A newline could add lines that look like accel's.
"""

from collections.abc import Iterable
from difflib import get_close_matches

#: The number of characters that `one_line` keeps.
_MAX_LINE = 4000
#: The number of characters that `short_repr` keeps.
_MAX_REPR = 200


def one_line(text: str) -> str:
    """Return `text` on one line, with control characters escaped, and truncated after
    4000 characters.
    """
    words = text[:_MAX_LINE].split()
    line = " ".join(words)
    if len(text) > _MAX_LINE:
        line += "…"
    return escape_control_chars(line)


def strip_period(text: str) -> str:
    """Return `text` without the period at its end, for use within a sentence. An
    ellipsis is kept.
    """
    if text.endswith(".") and not text.endswith(".."):
        return text[:-1]
    return text


def escape_control_chars(text: str) -> str:
    """Return `text` with control characters escaped, except newlines and tabs."""
    if text.isprintable():
        return text
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    quoted = ascii(character)  # such as "'\\x1b'"
    return quoted.strip("'")


def short_repr(value: object) -> str:
    """Return `repr(value)`, truncated after 200 characters, for an error about a
    plugin's result. If `repr` fails, return `"<Widget instance>"`, for example.
    """
    try:
        text = repr(value)
    # `repr(10**5000)` fails, and the class of a plugin may raise any exception.
    except Exception:
        return f"<{type(value).__name__} instance>"
    if len(text) > _MAX_REPR:
        return f"{text[:_MAX_REPR]}…"
    return text


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question such as `" Did you mean 'npu'?"` if `name` is similar to one of
    `names`, or an empty string otherwise.
    """
    close = get_close_matches(name.lower(), list(names), n=1)
    if not close:
        return ""
    return f" Did you mean {close[0]!r}?"
