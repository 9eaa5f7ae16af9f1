"""From an error's text to the next step for a user."""

from __future__ import annotations

import re
from collections.abc import Iterable

from accel_core.errors import message

__all__ = ["hint_for"]


def hint_for(error: BaseException, hints: Iterable[tuple[str, str]]) -> str | None:
    """The hint of the first pattern that is found in the text of `error` and its causes; `None` without one.

    For `Backend.hints`, and for a plugin's `accel_explain`. `hints` are regular expressions, each with the
    next step for a user; upper and lower case are one. One that is no pattern is passed over.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and not any(link is known for known in chain):  # a chain may be a ring
        chain.append(link)
        link = link.__cause__ or link.__context__
    text = "\n".join(map(message, chain))
    return next((hint for pattern, hint in hints if _is_in(pattern, text)), None)


def _is_in(pattern: str, text: str) -> bool:
    try:
        return re.search(pattern, text, re.IGNORECASE) is not None
    except (re.error, OverflowError, RecursionError):  # none that `re` knows: the error is what matters now
        return False
