"""Record reads and writes of variables such as `CUDA_VISIBLE_DEVICES` by `os.environ` and `os.getenv`."""

from __future__ import annotations

import os
import sys
from collections.abc import ItemsView, KeysView, Mapping, MutableMapping, ValuesView
from types import FrameType
from typing import Any

from accel_simulated.detector.log import Log
from accel_simulated.detector.names import VendorNames

__all__ = ["watch"]

#: Functions of Python that read all variables, whatever their names.
_READ_ALL = tuple(
    method.__code__
    for method in (ItemsView.__iter__, ValuesView.__iter__, MutableMapping.popitem)
)
_UPDATE = MutableMapping.update.__code__
_Original: Any = type(os.environ)
_frame = sys._getframe
_log: Log
#: The device type that belongs to each recorded variable.
_types: dict[object, str] = {}
#: The frame and instruction that last called `keys()`; `dict(os.environ)` then reads every variable.
_reads_all = (0, 0)


def watch(log: Log, recorded: Mapping[str, VendorNames]) -> None:
    """Start to record the code that reads or writes these device types' variables by name."""
    global _log
    _log = log
    for device_type, names in recorded.items():
        for variable in names.variables:
            _types[variable] = device_type
    os.environ.__class__ = _WatchedEnvironment


def _record(frame: FrameType, variable: object, verb: str) -> None:
    """Record that a frame reads or writes a variable, unless the frame reads all variables."""
    code = frame.f_code
    # `mock.patch.dict` restores the whole environment without naming a variable.
    is_whole = code is _UPDATE and "PATH" in frame.f_locals.get("other", ())
    if is_whole or code in _READ_ALL or _reads_all == (id(frame), frame.f_lasti):
        return
    _log.record(frame, "environment", f"{variable} {verb}", _types[variable])


class _WatchedEnvironment(_Original):  # type: ignore[misc]
    """`os.environ`, unchanged except that uses of some variables are recorded."""

    def __getitem__(self, key: Any) -> Any:
        if key in _types:
            _record(_frame(1), key, "read")
        return _Original.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in _types:
            _record(_frame(1), key, "written")
        _Original.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if key in _types:
            _record(_frame(1), key, "written")
        _Original.__delitem__(self, key)

    def __contains__(self, key: object) -> bool:
        if key in _types:
            _record(_frame(1), key, "read")
        try:
            _Original.__getitem__(self, key)
        except KeyError:
            return False
        return True

    def keys(self) -> KeysView[Any]:
        global _reads_all
        frame = _frame(1)
        _reads_all = id(frame), frame.f_lasti
        return KeysView(self)

    def copy(self) -> dict[Any, Any]:
        return {key: _Original.__getitem__(self, key) for key in self}
