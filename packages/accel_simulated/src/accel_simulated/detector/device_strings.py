"""Record device strings such as `"cuda:0"` wherever torch reads one, in Python calls and in C functions.

A small library (`device_strings.cpp`) is loaded before torch, and the dynamic linker makes torch call this
library for each string. Strings that are not recorded add no overhead. No torch object is replaced:
`torch.device` is still the original class.
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
from accel_simulated.detector import advice, attribution
from accel_simulated.detector.attribution import Owner
from accel_simulated.detector.log import NOT_RECORDED, Counter, Log
from accel_simulated.detector.wrapping import Use, format_error, is_device_check

__all__ = ["LIBRARY", "build", "build_into", "intercepts_torch", "load", "watch"]

#: The library's file name in the folder that holds the files of a recorded run.
LIBRARY = "device_strings.so"
_SOURCE = Path(__file__).with_name("device_strings.cpp")
_FLAGS = ("-std=c++17", "-O1", "-g0", "-fPIC", "-shared", "-w")
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)
#: References to the callback functions that the library calls, so that they are not freed.
_callbacks: list[object] = []


def build() -> Path:
    """Return the path of the library that intercepts device strings, and compile it if necessary.

    Compiling takes about half a second, and is skipped if a prebuilt library exists. Raises
    `CannotBuildError` if no compiler is found. Raises `BuildError` if the library does not compile or the
    cache cannot be written.
    """
    library = prebuilt.find(_library_key())
    if library is not None:
        return library
    return _build_in_cache()


def build_into(folder: Path) -> Path:
    """Copy the library that intercepts device strings into a folder of prebuilt libraries.

    Returns the path of the copy. Raises the same errors as `build`.
    """
    return prebuilt.copy_library(_build_in_cache(), _library_key(), folder)


def _library_key() -> prebuilt.LibraryKey:
    """Return the key of the library, which works with every torch because it includes no torch header."""
    text = f"{_FLAGS} {_SOURCE.read_text(encoding='utf-8')}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    return prebuilt.LibraryKey("strings", torch_version="any", source_digest=digest)


def _build_in_cache() -> Path:
    """Return the path of the cached library, and compile it if necessary.

    Raises the same errors as `build`.
    """
    command = [*building.compiler(), *_FLAGS, str(_SOURCE), "-ldl"]
    return cache.find_or_compile(
        _library_key(),
        command,
        description="the library that detects device strings",
        next_step="set CXX to another compiler",
    )


def load(folder: str) -> ctypes.CDLL | None:
    """Load and return the library that intercepts device strings, or return `None` if loading fails.

    Call this function before torch is imported.
    """
    try:
        return ctypes.CDLL(os.path.join(folder, LIBRARY), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def watch(library: ctypes.CDLL, log: Log, types: Iterable[str]) -> None:
    """Start recording code that passes torch a string with one of these device types."""
    recorder = _DeviceStringRecorder()

    def record(text: bytes, error: bytes | None) -> None:
        frame = sys._getframe(1)  # the Python code that called torch
        counter = recorder.record(log, frame, text.decode(errors="replace"))
        if error:
            message = error.decode(errors="replace")
            log.record_error(counter, format_error("RuntimeError", message))

    callback = _Callback(record)
    _callbacks.append(callback)
    # The library searches this list for ",TYPE,".
    comma_separated_types = f",{','.join(types)},"
    library.watch(callback, comma_separated_types.encode())


class _DeviceStringRecorder:
    """A recorder of device strings and the kinds of calls in which the program passes them to torch."""

    def __init__(self) -> None:
        from torch.amp import autocast_mode

        # `torch.autocast` reads its device string in these two functions.
        self._autocast_init_code = autocast_mode.autocast.__init__.__code__
        self._is_autocast_available_code = autocast_mode.is_autocast_available.__code__

    def record(self, log: Log, frame: FrameType, text: str) -> Counter:
        """Record that torch reads the device string `text` in a call from `frame`, and return the counter."""
        device_type = text.partition(":")[0]
        if attribution.find_owner(frame) is Owner.USER:
            return log.record(
                frame, "device", f'"{text}"', device_type, name_in_string=device_type
            )
        # `called_frame` is the function of torch or of a vendor that the user's code called, or None if
        # that function is written in C. It may have called further functions, the last of them in `frame`.
        user_frame, called_frame = attribution.find_user_call(frame)
        if user_frame is None:
            return NOT_RECORDED
        use = Use("device", f'"{text}"', device_type, name_in_string=device_type)
        if called_frame is not None:
            if not attribution.received_argument(called_frame, text):
                return NOT_RECORDED  # torch itself contains the string
            # `torch.autocast` reads its string twice. The first read, in `is_autocast_available`, is counted.
            is_autocast = called_frame.f_code is self._autocast_init_code
            if is_autocast and frame.f_code is not self._is_autocast_available_code:
                return NOT_RECORDED
            use = self._find_use(called_frame.f_code, text, device_type)
        counter = log.find_or_add_counter(user_frame, *use)
        log.count(counter)
        return counter

    def _find_use(self, function: CodeType, text: str, device_type: str) -> Use:
        """Return how a call uses the device string `text`, where `function` is the called function's code."""
        if function is self._autocast_init_code:
            kind, what = "precision", f'autocast("{text}")'
        elif is_device_check(function.co_name):
            kind, what = advice.DEVICE_CHECK, f'{function.co_name}("{text}")'
        else:
            kind, what = "device", f'"{text}"'
        return Use(kind, what, device_type, name_in_string=device_type)


def intercepts_torch(library: ctypes.CDLL) -> bool:
    """Return whether the library can intercept the device strings that torch reads.

    Some builds of torch are linked in a way that bypasses the library.
    """
    import torch

    received_texts: list[bytes] = []

    def receive(text: bytes, _error: bytes | None) -> None:
        received_texts.append(text)

    callback = _Callback(receive)
    library.watch(callback, b",cuda,")
    # The library calls `receive` with this string, unless torch bypasses the library.
    torch.device("cuda")
    no_callback = _Callback()
    library.watch(no_callback, b"")
    return bool(received_texts)
