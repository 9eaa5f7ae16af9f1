"""Replace functions with wrappers that record their callers and look like the original functions."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from accel_simulated import imports
from accel_simulated.detector.log import NOT_RECORDED, Log

__all__ = [
    "FUNCTION_TYPES",
    "Use",
    "call_when_imported",
    "describe_error",
    "hide_from_warnings",
    "is_device_check",
    "replace_function",
    "wrap_to_record_calls",
    "wrap_to_record_matching_calls",
]  # fmt: skip

_MAX_MESSAGE_LENGTH = 200
FUNCTION_TYPES = (FunctionType, functools._lru_cache_wrapper)


class Use(NamedTuple):
    """A use of a vendor's name in a program, described in the terms of the report."""

    #: A key of `advice.KINDS`.
    kind: str
    #: The code that uses the name, such as `"torch.cuda.synchronize()"`.
    what: str
    #: The torch device type to which the name belongs.
    device_type: str
    #: The name as spelled in the received string, or an empty string if no string contains it (see
    #: `Log.find_or_add_counter`).
    name_in_string: str = ""


def wrap_to_record_calls(
    log: Log, function: Callable[..., Any], use: Use
) -> Callable[..., Any]:
    """Return a wrapper of `function` that records each call and any error that the call raises."""

    def find_use(_positional: tuple[Any, ...], _named: dict[str, Any]) -> Use:
        return use  # every call is recorded

    return wrap_to_record_matching_calls(log, function, find_use)


def wrap_to_record_matching_calls(
    log: Log,
    function: Callable[..., Any],
    find_use: Callable[[tuple[Any, ...], dict[str, Any]], Use | None],
) -> Callable[..., Any]:
    """Return a wrapper of `function` that records calls whose arguments use a vendor's name.

    `find_use` gets the positional and keyword arguments. It returns the use, or `None` if the call is not to
    be recorded.
    """
    # These names are local variables, because the wrapper gets the global variables of `function`.
    get_frame, describe = sys._getframe, describe_error
    not_recorded = NOT_RECORDED

    def wrapper(*arguments: Any, **named: Any) -> Any:
        use = find_use(arguments, named)
        if use is None:
            return function(*arguments, **named)
        counter = log.record(get_frame(1), *use)
        if counter == not_recorded:
            return function(*arguments, **named)
        try:
            return function(*arguments, **named)
        except Exception as error:
            log.record_error(counter, describe(error))
            raise

    return _disguise(wrapper, function)


def _disguise(wrapper: Any, function: Any) -> Callable[..., Any]:
    """Return a copy of the wrapper that looks like `function`, even to code that inspects its module."""
    original = inspect.unwrap(function)
    # Code that inspects the function's module reads its global variables, so the copy has them too.
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
    return hide_from_warnings(disguised)


def hide_from_warnings(wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Hide a wrapper from the `warnings` module, so that a warning points at the wrapper's caller.

    The wrapper gets a file name that `warnings` skips. Returns the same wrapper.
    """
    function: Any = wrapper
    # `warnings` skips files whose names contain both `importlib` and `_bootstrap`.
    function.__code__ = function.__code__.replace(
        co_filename="<accel_simulated importlib._bootstrap>"
    )
    return wrapper


def replace_function(module: ModuleType, old: Any, new: Any) -> None:
    """Replace the function `old` with `new` in its module.

    The function is also replaced in the parent package if that package imports it.
    """
    name: str = old.__name__
    parent_name, _, _ = module.__name__.rpartition(".")
    parent_package = sys.modules[parent_name]
    for namespace in (module, parent_package):
        if getattr(namespace, name, None) is old:
            setattr(namespace, name, new)


def call_when_imported(module: str, change: Callable[[ModuleType], None]) -> None:
    """Call `change` with the module once it is imported, or immediately if it has already been imported."""
    if module in sys.modules:
        change(sys.modules[module])
    else:
        imports.on_import(module, after=change)


def is_device_check(name: str) -> bool:
    """Return whether a function with this name only checks which devices or features are available.

    Examples are `is_available` and `device_count`.
    """
    prefixes = ("is_", "has_", "can_")
    return name.lstrip("_").startswith(prefixes) or name == "device_count"


def describe_error(error: BaseException) -> str:
    """Return an error as one line, such as "AssertionError: Torch not compiled with CUDA enabled"."""
    return format_error(type(error).__name__, str(error))


def format_error(error_type: str, message: str) -> str:
    """Return an error's type followed by at most 200 characters of the first line of its message."""
    lines = message.splitlines()
    first_line = lines[0] if lines else ""
    return f"{error_type}: {first_line[:_MAX_MESSAGE_LENGTH]}"
