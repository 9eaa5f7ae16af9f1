"""What lies behind an exception: the first of its chain, and where that was raised."""

from __future__ import annotations

import sys

__all__ = ["CAUGHT", "is_of_another_core", "root_cause", "root_place"]

#: What a plugin or a vendor may throw at us; `KeyboardInterrupt` passes.
CAUGHT = (Exception, SystemExit)


def root_cause(error: BaseException) -> str:
    """The first exception of a chain as `Type: message`; the outer ones mostly say "failed to load"."""
    error = _root(error)
    if isinstance(error, SystemExit):
        return f"SystemExit: it tried to end the process with {error.code!r}"
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def is_of_another_core(error: BaseException) -> bool:
    """Whether a chain begins with a name or a module that was asked of accel_core, which has none such."""
    error = _root(error)
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0] == "accel_core"
    return isinstance(error, AttributeError) and error.obj is sys.modules["accel_core"]


def root_place(error: BaseException) -> str:
    """The file and line that raised the first exception of a chain; empty where accel_core did."""
    place, trace = "", _root(error).__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<"):  # Python's own import
            own = trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "accel_core"
            place = "" if own else f"{file}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return place


def _root(error: BaseException) -> BaseException:
    seen = {id(error)}
    while (
        inner := error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    ) is not None:
        if id(inner) in seen:
            break
        seen.add(id(inner))
        error = inner
    return error


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except CAUGHT:  # an exception whose own message fails must not be what the user gets to see
        return "(its message cannot be read)"
