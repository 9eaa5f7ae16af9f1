"""Interpret exceptions from plugins, vendors and torch: find the root cause, the line
that raised it, and a hint.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import PurePath
from traceback import walk_stack, walk_tb
from types import FrameType

#: The exceptions of plugins and vendors that accel catches; `KeyboardInterrupt` passes.
PLUGIN_ERRORS = (Exception, SystemExit)
#: The packages of accel itself. Their code belongs neither to a user nor to a plugin.
OWN_MODULES = ("accel_core", "accel_train", "accel_tools", "accel_testing")
#: Folders of installed packages.
_SITE_FOLDERS = {"site-packages", "dist-packages"}


def root_cause(error: BaseException) -> str:
    """Return the first exception in an exception chain, as `Type: message`.

    Later exceptions in the chain usually report only that a module failed to load.
    """
    first = first_in_chain(error)
    if isinstance(first, SystemExit):
        return f"SystemExit: the code tried to exit the process with {first.code!r}"
    type_name = type(first).__name__
    text = message(first)
    if not text:
        return type_name
    return f"{type_name}: {text}"


def root_place(error: BaseException) -> str:
    """Return the file and line that raised the first exception in a chain, or an empty
    string if accel's own code raised it.
    """
    place = ""
    # The last frame in a traceback is the one that raised the exception.
    for frame, line in walk_tb(first_in_chain(error).__traceback__):
        file = frame.f_code.co_filename
        if file.startswith("<"):  # a frame of Python's import system
            continue
        if is_own_frame(frame):
            place = ""
        else:
            place = f"{file}, line {line}"
    return place


def user_stacklevel() -> int:
    """Return the `stacklevel` that makes `warnings.warn` report the user's line.

    That line is in the nearest caller outside installed packages, or otherwise in the
    nearest caller outside accel.
    """
    level = 0
    nearest_level = 1
    has_left_accel = False
    for frame, _line in walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        if "importlib._bootstrap" not in file:  # `warnings` does not count those frames
            level += 1
        if is_own_frame(frame):
            continue
        if not has_left_accel:
            has_left_accel = True
            nearest_level = level
        # An installed package only passes on the call of its user.
        is_installed = not _SITE_FOLDERS.isdisjoint(PurePath(file).parts)
        is_frozen = file.startswith("<frozen ")
        if not is_installed and not is_frozen:
            return level
    return nearest_level


def is_own_frame(frame: FrameType) -> bool:
    """Return whether the frame runs code of accel-core, its packages or plugins."""
    module = str(frame.f_globals.get("__name__"))
    return module.partition(".")[0] in OWN_MODULES


def first_in_chain(error: BaseException) -> BaseException:
    """Return the exception that caused all later exceptions in `error`'s chain."""
    chain = list(_chain(error))
    return chain[-1]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error` and the exceptions that caused it, with the latest first.

    An exception that a caller is still handling is not a cause: the frame that raised
    it is still running.
    """
    running_frames = [frame for frame, _line in walk_stack(None)]
    visited: set[int] = set()  # A chain may be a cycle.
    current = error
    while id(current) not in visited:
        visited.add(id(current))
        yield current
        earlier = _earlier_error(current)
        if earlier is None:
            return
        trace = earlier.__traceback__
        is_being_handled = trace is not None and trace.tb_frame in running_frames
        if is_being_handled:
            return
        current = earlier


def _earlier_error(error: BaseException) -> BaseException | None:
    """Return the exception that Python's traceback prints above `error`, or `None` if
    there is none.
    """
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
        return "(the error's message cannot be read)"


def hint_for(error: BaseException, hints: Iterable[tuple[str, str]]) -> str | None:
    """Return the hint of the first pattern that matches the text of `error` or of one
    of its causes. Return `None` if no pattern matches.

    `Backend.hints` uses this function, and a plugin's `accel_explain` may use it.
    `hints` are pairs of a regular expression, which is matched without regard to case,
    and the user's next step. An invalid pattern is skipped.
    """
    messages = [message(each) for each in _chain(error)]
    text = "\n".join(messages)
    for pattern, hint in hints:
        # The vendor's error matters more than an invalid pattern.
        with suppress(re.error, OverflowError, RecursionError):
            if re.search(pattern, text, re.IGNORECASE):
                return hint
    return None
