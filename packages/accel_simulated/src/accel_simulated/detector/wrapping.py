"""Replace functions by wrappers that record their callers and look like the original functions."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from accel_simulated import imports
from accel_simulated.detector.log import Log

__all__ = [
    "FUNCTION_TYPES", "Use", "first_line", "hide_frame", "is_question", "recorded", "recorded_if",
    "replace", "when_imported",
]  # fmt: skip

FUNCTION_TYPES = (FunctionType, functools._lru_cache_wrapper)


class Use(NamedTuple):
    """A use of one vendor's name, as described in the report."""

    #: A key of `advice.KINDS`.
    kind: str
    #: The use, such as `"torch.cuda.synchronize()"`.
    what: str
    #: The torch device type to which the name belongs.
    device_type: str
    #: The name as spelled in the received string; empty if no string contains it (see `Log.counter_of`).
    word: str = ""


def recorded(log: Log, function: Callable[..., Any], use: Use) -> Callable[..., Any]:
    """Return a wrapper of `function` that records each caller, and the errors raised for that caller."""
    return recorded_if(log, function, lambda _arguments, _named: use)


def recorded_if(
    log: Log,
    function: Callable[..., Any],
    find_use: Callable[[tuple[Any, ...], dict[str, Any]], Use | None],
) -> Callable[..., Any]:
    """Return a wrapper of `function` that records a caller if `find_use` finds a use in the arguments."""
    # These names are local, because the wrapper gets the globals of `function`.
    record, record_error, frame_at, line_of = (
        log.record,
        log.record_error,
        sys._getframe,
        first_line,
    )

    def wrapper(*arguments: Any, **named: Any) -> Any:
        use = find_use(arguments, named)
        if use is None:
            return function(*arguments, **named)
        counter = record(frame_at(1), *use)
        if counter < 0:
            return function(*arguments, **named)
        try:
            return function(*arguments, **named)
        except Exception as error:
            record_error(counter, line_of(error))
            raise

    return _disguised(wrapper, function)


def _disguised(wrapper: Any, function: Any) -> Callable[..., Any]:
    """Return the wrapper disguised as a function of the original module, which accel_core inspects too."""
    original = inspect.unwrap(function)
    disguised = FunctionType(
        wrapper.__code__,
        getattr(original, "__globals__", wrapper.__globals__),
        closure=wrapper.__closure__,
    )
    functools.update_wrapper(disguised, function)
    if isinstance(function, functools._lru_cache_wrapper):
        vars(disguised).update(
            cache_clear=function.cache_clear, cache_info=function.cache_info
        )
    return hide_frame(disguised)


def hide_frame(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Give the wrapper a file name that `warnings` skips, so that a warning names the wrapper's caller."""
    hidden: Any = wrapper
    hidden.__code__ = hidden.__code__.replace(
        co_filename="<accel_simulated importlib._bootstrap>"
    )
    return wrapper


def replace(module: ModuleType, old: Any, new: Any) -> None:
    """Replace a function in its module, and in the parent package if the package has imported it."""
    name: str = old.__name__
    package = sys.modules[module.__name__.rpartition(".")[0]]
    for place in (module, package):
        if getattr(place, name, None) is old:
            setattr(place, name, new)


def when_imported(module: str, change: Callable[[ModuleType], None]) -> None:
    """Call `change` with a module: immediately if the module is imported, otherwise after its import."""
    if module in sys.modules:
        change(sys.modules[module])
    else:
        imports.on_import(module, after=change)


def is_question(name: str) -> bool:
    """Return whether a function only queries what is present, as `is_available` and `device_count` do."""
    prefixes = ("is_", "has_", "can_")
    return name.lstrip("_").startswith(prefixes) or name == "device_count"


def first_line(error: BaseException | str, error_type: str = "") -> str:
    """Return an error in one line, such as "AssertionError: Torch not compiled with CUDA enabled"."""
    error_type = error_type or type(error).__name__
    lines = str(error).splitlines()
    return f"{error_type}: {lines[0][:200] if lines else ''}"
