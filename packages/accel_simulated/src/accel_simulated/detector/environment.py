"""Record code that reads or writes variables such as `CUDA_VISIBLE_DEVICES` through `os`."""

from __future__ import annotations

import os
import sys
from collections.abc import ItemsView, KeysView, Mapping, MutableMapping, ValuesView
from types import FrameType
from typing import Any

from accel_simulated.detector.log import Log
from accel_simulated.detector.names import VendorNames

__all__ = ["watch"]

#: The code objects of Python functions that read all variables, regardless of their names.
_FUNCTIONS_THAT_READ_ALL = tuple(
    method.__code__
    for method in (ItemsView.__iter__, ValuesView.__iter__, MutableMapping.popitem)
)
_UPDATE_FUNCTION = MutableMapping.update.__code__
_OriginalEnvironment: Any = type(os.environ)
_frame = sys._getframe
_log: Log
#: The torch device type that each recorded variable belongs to.
_type_of_variable: dict[object, str] = {}
#: The id and the current instruction of the frame that last called `keys()`. `dict(os.environ)` calls
#: `keys()` and then reads every variable in the same instruction.
_last_keys_call = (0, 0)


def watch(log: Log, names_by_type: Mapping[str, VendorNames]) -> None:
    """Start recording code that reads or writes vendor-specific environment variables by name.

    `names_by_type` contains the variables of each torch device type.
    """
    global _log
    _log = log
    for device_type, names in names_by_type.items():
        for variable in names.variables:
            _type_of_variable[variable] = device_type
    os.environ.__class__ = _RecordingEnvironment


def _record(frame: FrameType, variable: object, verb: str) -> None:
    """Record that a frame reads or writes a variable, unless the frame reads all variables."""
    code = frame.f_code
    if code in _FUNCTIONS_THAT_READ_ALL:
        return
    # `dict(os.environ)` calls `keys()`, and then reads all variables in the same instruction.
    if _last_keys_call == (id(frame), frame.f_lasti):
        return
    # `mock.patch.dict` restores the whole environment, which includes PATH, without naming a variable.
    if code is _UPDATE_FUNCTION and "PATH" in frame.f_locals.get("other", ()):
        return
    _log.record(frame, "environment", f"{variable} {verb}", _type_of_variable[variable])


class _RecordingEnvironment(_OriginalEnvironment):  # type: ignore[misc]
    """The class of `os.environ` during a recording, which records uses of some variables."""

    def __getitem__(self, key: Any) -> Any:
        if key in _type_of_variable:
            _record(_frame(1), key, "read")
        return _OriginalEnvironment.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in _type_of_variable:
            _record(_frame(1), key, "written")
        _OriginalEnvironment.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if key in _type_of_variable:
            _record(_frame(1), key, "written")
        _OriginalEnvironment.__delitem__(self, key)

    def __contains__(self, key: object) -> bool:
        if key in _type_of_variable:
            _record(_frame(1), key, "read")
        try:
            _OriginalEnvironment.__getitem__(self, key)
        except KeyError:
            return False
        return True

    def keys(self) -> KeysView[Any]:
        global _last_keys_call
        # `_record` uses the call's place to ignore code that reads all variables.
        frame = _frame(1)
        _last_keys_call = id(frame), frame.f_lasti
        return KeysView(self)

    def copy(self) -> dict[Any, Any]:
        return {key: _OriginalEnvironment.__getitem__(self, key) for key in self}
