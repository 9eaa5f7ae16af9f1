"""Reading exceptions of plugins, vendors and torch: the first cause, its place, a
hint.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import PurePath
from traceback import walk_stack, walk_tb
from types import FrameType

#: What code of a plugin or a vendor may raise; `KeyboardInterrupt` passes.
PLUGIN_ERRORS = (Exception, SystemExit)
#: Packages whose lines of code belong neither to a user nor to a plugin.
OWN_MODULES = ("accel_core", "accel_train", "accel_tools", "accel_testing")
#: Folders of installed packages.
_SITE_FOLDERS = {"site-packages", "dist-packages"}


def root_cause(error: BaseException) -> str:
    """Return the first exception of a chain as `Type: message`: later ones mostly
    report only that something failed to load.
    """
    first = first_in_chain(error)
    if isinstance(first, SystemExit):
        return f"SystemExit: it tried to end the process with {first.code!r}"
    kind = type(first).__name__
    text = message(first)
    if not text:
        return kind
    return f"{kind}: {text}"


def root_place(error: BaseException) -> str:
    """Return the file and line that raised the first exception of a chain; empty if
    that is a line of accel.
    """
    place = ""
    for frame, line in walk_tb(first_in_chain(error).__traceback__):
        file = frame.f_code.co_filename
        if file.startswith("<"):  # Python's own import
            continue
        if is_own_frame(frame):
            place = ""
        else:
            place = f"{file}, line {line}"
    return place


def user_stacklevel() -> int:
    """Return the `stacklevel` with which `warnings.warn` reports the user's line: that
    of the nearest caller outside installed packages, else outside accel.
    """
    level = nearest = 0
    for frame, _ in walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        if "importlib._bootstrap" not in file:  # `warnings` does not count those frames
            level += 1
        if is_own_frame(frame):
            continue
        if not nearest:
            nearest = level
        # An installed package only passes on what its user calls.
        is_installed = not _SITE_FOLDERS.isdisjoint(PurePath(file).parts)
        if not is_installed and not file.startswith("<frozen "):
            return level
    return nearest or 1


def is_own_frame(frame: FrameType) -> bool:
    """Whether the frame runs code of accel-core, its packages or plugins."""
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] in OWN_MODULES


def first_in_chain(error: BaseException) -> BaseException:
    """Return the first cause of `error`."""
    chain = list(_chain(error))
    return chain[-1]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and the exceptions that caused it, the latest first.

    An exception that a caller is handling right now is not a cause: the frame that
    raised it is still running.
    """
    running = [frame for frame, _ in walk_stack(None)]
    seen: set[int] = set()
    current = error
    while id(current) not in seen:
        seen.add(id(current))
        yield current
        earlier = _earlier(current)
        if earlier is None:
            return
        trace = earlier.__traceback__
        if trace is not None and trace.tb_frame in running:
            return
        current = earlier


def _earlier(error: BaseException) -> BaseException | None:
    """Return the exception that a traceback shows above `error`."""
    if error.__cause__ is not None:
        return error.__cause__
    if error.__suppress_context__:
        return None
    return error.__context__


def message(error: BaseException) -> str:
    """Return the text of `error`, even if its `__str__` fails."""
    try:
        return str(error)
    except PLUGIN_ERRORS:
        return "(its message cannot be read)"


def hint_for(error: BaseException, hints: Iterable[tuple[str, str]]) -> str | None:
    """Return the hint of the first pattern that matches the text of `error` or of its
    causes; `None` if no pattern matches.

    For `Backend.hints`, and for a plugin's `accel_explain`. `hints` are pairs: a
    regular expression, matched without regard to case, and the user's next step. An
    invalid pattern is skipped.
    """
    text = "\n".join(map(message, _chain(error)))
    for pattern, hint in hints:
        # The vendor's error matters more than an invalid pattern.
        with suppress(re.error, OverflowError, RecursionError):
            if re.search(pattern, text, re.IGNORECASE):
                return hint
    return None
