"""`CUDA_VISIBLE_DEVICES` and its like, read or written in `os.environ`, also by `os.getenv`."""

from __future__ import annotations

import os
import sys
from collections.abc import ItemsView, KeysView, Mapping, MutableMapping, ValuesView
from types import FrameType
from typing import Any

from accel_simulated.detector.log import Log
from accel_simulated.detector.names import Names

__all__ = ["watch"]

#: Who asks for each variable because it is there.
_THROUGH_ALL = tuple(
    method.__code__
    for method in (ItemsView.__iter__, ValuesView.__iter__, MutableMapping.popitem)
)
_UPDATE = MutableMapping.update.__code__
_usual: Any = type(os.environ)
_frame = sys._getframe
_log: Log
#: The device type of each variable that is watched.
_types: dict[object, str] = {}
#: The frame, and the place in it, that asked last for all names: what follows there asks for none by name.
_through = (0, 0)


def watch(log: Log, foreign: Mapping[str, Names]) -> None:
    """Record from now on who reads and writes these types' variables by name."""
    global _log
    _log = log
    _types.update(
        {
            variable: kind
            for kind, names in foreign.items()
            for variable in names.variables
        }
    )
    os.environ.__class__ = _Environ


def _seen(frame: FrameType, name: object, verb: str) -> None:
    code = frame.f_code
    # A whole environment that is put back names none either, as `mock.patch.dict` does.
    whole = code is _UPDATE and "PATH" in frame.f_locals.get("other", ())
    if (
        code not in _THROUGH_ALL
        and not whole
        and _through != (id(frame), frame.f_lasti)
    ):
        _log.seen(frame, "environment", f"{name} {verb}", _types[name])


class _Environ(_usual):  # type: ignore[misc]
    """`os.environ`, unchanged but for being watched."""

    def __getitem__(self, key: Any) -> Any:
        if key in _types:
            _seen(_frame(1), key, "read")
        return _usual.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        if key in _types:
            _seen(_frame(1), key, "written")
        _usual.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if key in _types:
            _seen(_frame(1), key, "written")
        _usual.__delitem__(self, key)

    def __contains__(self, key: object) -> bool:
        if key in _types:
            _seen(_frame(1), key, "read")
        try:
            _usual.__getitem__(self, key)
        except KeyError:
            return False
        return True

    def keys(self) -> KeysView[Any]:
        global _through
        frame = _frame(1)  # dict(os.environ) asks for the names, and then for each
        _through = id(frame), frame.f_lasti
        return KeysView(self)

    def copy(self) -> dict[Any, Any]:
        return {key: _usual.__getitem__(self, key) for key in self}
