"""Record device strings such as `"cuda:0"` wherever torch reads one, in Python calls and in C functions.

A small library (`device_strings.cpp`) is loaded before torch, and the dynamic linker makes torch call the
library for each string. Strings that are not recorded cost nothing. No object of torch is replaced:
`torch.device` remains torch's class.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType

from accel_simulated import building, cache, prebuilt
from accel_simulated.detector import attribution
from accel_simulated.detector.attribution import Owner
from accel_simulated.detector.log import NOT_RECORDED, Counter, Log
from accel_simulated.detector.wrapping import Use, first_line, is_question

__all__ = ["LIBRARY", "build", "build_into", "intercepts_torch", "load", "watch"]

#: The library's file name in the folder of a run.
LIBRARY = "device_strings.so"
_SOURCE = Path(__file__).with_name("device_strings.cpp")
_FLAGS = ("-std=c++17", "-O1", "-g0", "-fPIC", "-shared", "-w")
_NEXT_STEP = "set CXX to another compiler"
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)
#: References to the callback functions that the library calls, so that they are not freed.
_callbacks: list[object] = []


def build() -> Path:
    """Return the path of the prebuilt library; without one, compile (half a second) and cache the library.

    Raises `CannotBuildError` if no compiler is found, and `BuildError` if the library does not compile or the
    cache cannot be written.
    """
    return prebuilt.find(_fit()) or _build_in_cache()


def build_into(folder: Path) -> Path:
    """Copy the library into `folder`, the folder of prebuilt devices; return the copy's path.

    Raises the errors of `build`.
    """
    return prebuilt.write(_build_in_cache(), _fit(), folder)


def _fit() -> prebuilt.Fit:
    """Return the library's identification, which is valid for every torch: no torch header is included."""
    text = f"{_FLAGS} {_SOURCE.read_text(encoding='utf-8')}"
    return prebuilt.Fit("strings", "any", hashlib.sha256(text.encode()).hexdigest())


def _build_in_cache() -> Path:
    command = [*building.compiler(), *_FLAGS, str(_SOURCE), "-ldl"]
    return cache.build(_fit(), command, "the detector of device strings", _NEXT_STEP)


def load(folder: str) -> ctypes.CDLL | None:
    """Load and return the library, or `None` if loading fails; call this before torch is imported."""
    try:
        return ctypes.CDLL(os.path.join(folder, LIBRARY), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def watch(library: ctypes.CDLL, log: Log, types: Iterable[str]) -> None:
    """Start to record the callers that pass a string with one of these device types to torch."""
    find_use = _UseFinder()

    def record(text: bytes, error: bytes | None) -> None:
        frame = sys._getframe(1)
        counter = find_use.record(log, frame, text.decode(errors="replace"))
        if error:
            message = error.decode(errors="replace")
            log.record_error(counter, first_line(message, "RuntimeError"))

    _callbacks.append(callback := _Callback(record))
    library.watch(callback, f",{','.join(types)},".encode())


class _UseFinder:
    """Finds the use of a device string from the function of torch that the program called."""

    def __init__(self) -> None:
        from torch.amp import autocast_mode

        self._autocast = autocast_mode.autocast.__init__.__code__
        self._asks_autocast = autocast_mode.is_autocast_available.__code__

    def record(self, log: Log, frame: FrameType, text: str) -> Counter:
        """Record that torch reads `text` in a call from `frame`; return the counter."""
        device_type = text.partition(":")[0]
        if attribution.owner_of(frame) is Owner.USER:
            return log.record(frame, "device", f'"{text}"', device_type, device_type)
        user, entered = attribution.user_frame_beyond_torch(frame)
        if user is None:
            return NOT_RECORDED
        use = Use("device", f'"{text}"', device_type, device_type)
        if entered is not None:
            if not attribution.was_argument(entered, text):
                return NOT_RECORDED  # the string is in torch's own code
            if entered.f_code is self._autocast and not self._is_first_read(frame):
                return NOT_RECORDED
            use = self._use_in_call(entered.f_code, text, device_type)
        counter = log.counter_of(user, *use)
        log.count(counter)
        return counter

    def _is_first_read(self, frame: FrameType) -> bool:
        """Return whether this is the first of the two times that `torch.autocast` reads its string."""
        return frame.f_code is self._asks_autocast

    def _use_in_call(self, function: CodeType, text: str, device_type: str) -> Use:
        """Return the use of the argument `text` in a call of one of torch's functions."""
        if function is self._autocast:
            return Use("precision", f'autocast("{text}")', device_type, device_type)
        if is_question(function.co_name):
            what = f'{function.co_name}("{text}")'
            return Use("ask", what, device_type, device_type)
        return Use("device", f'"{text}"', device_type, device_type)


def intercepts_torch(library: ctypes.CDLL) -> bool:
    """Return whether torch calls the library; some builds of torch are linked so that torch does not."""
    import torch

    texts: list[bytes] = []
    callback = _Callback(lambda text, _: texts.append(text))
    library.watch(callback, b",cuda,")
    torch.device("cuda")
    library.watch(_Callback(), b"")
    return bool(texts)
