"""Device strings: `"cuda:0"` wherever torch reads one, in Python's calls and in those of its C functions.

A small library (`device_strings.cpp`) is loaded before torch, and the dynamic linker has torch call it for
each string. It costs nothing for those of the device itself and of the CPU, and changes no object of torch's:
`torch.device` is torch's.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from accel_simulated import building, cache, prebuilt
from accel_simulated.detector import blame
from accel_simulated.detector.log import Log
from accel_simulated.detector.torch_names import first_line, is_question

__all__ = ["LIBRARY", "ahead", "build", "check", "load", "watch"]

#: Its name in the folder of a run.
LIBRARY = "device_strings.so"
_SOURCE = Path(__file__).with_name("device_strings.cpp")
_FLAGS = ("-std=c++17", "-O1", "-g0", "-fPIC", "-shared", "-w")
_NEXT_STEP = "set CXX to another compiler"
_Tell = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p)
#: What the library calls: it must live as long as it does.
_kept: list[object] = []


def build() -> Path:
    """Return the library: a prebuilt one, else one compiled in half a second and cached.

    Raises `CannotBuildError` if there is no compiler, and `BuildError` if it does not compile or the cache
    cannot be written.
    """
    return prebuilt.find(_fit()) or _from_cache()


def ahead(folder: Path) -> Path:
    """Put the library into `folder`, beside prebuilt devices; return its path. Raises what `build` raises."""
    return prebuilt.write(_from_cache(), _fit(), folder)


def _fit() -> prebuilt.Fit:
    # No header of torch's is in it, so it fits any.
    made_of = f"{_FLAGS} {_SOURCE.read_text(encoding='utf-8')}"
    return prebuilt.Fit("strings", "any", hashlib.sha256(made_of.encode()).hexdigest())


def _from_cache() -> Path:
    fit = _fit()
    command = [*building.compiler(), *_FLAGS, str(_SOURCE), "-ldl"]
    return cache.build(fit, command, "what sees device strings", _NEXT_STEP)


def load(folder: str) -> ctypes.CDLL | None:
    """Load the library; call this before torch is imported. Returns `None` if that fails."""
    try:
        return ctypes.CDLL(os.path.join(folder, LIBRARY), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return None


def watch(library: ctypes.CDLL, log: Log, types: Iterable[str]) -> None:
    """Start to record the callers for whom torch reads a string of these device types."""
    from torch.amp import autocast_mode

    of_autocast = autocast_mode.autocast.__init__.__code__
    asks_autocast = autocast_mode.is_autocast_available.__code__

    def tell(given: bytes, error: bytes | None) -> None:
        frame = sys._getframe(1)
        text = given.decode(errors="replace")
        of = text.partition(":")[0]
        if blame.whose(frame) == blame.USERS:
            counter = log.seen(frame, "device", f'"{text}"', of)
        else:
            user, entered = blame.past_torch(frame)
            if user is None or (
                entered is not None and not blame.was_given(entered, text)
            ):
                return
            kind, what = "device", f'"{text}"'
            if entered is not None and entered.f_code is of_autocast:
                if frame.f_code is not asks_autocast:
                    return  # it reads the string twice
                kind, what = "precision", f'autocast("{text}")'
            elif entered is not None and is_question(entered.f_code.co_name):
                kind, what = "ask", f'{entered.f_code.co_name}("{text}")'
            counter = log.place(user, kind, what, of)
            log.again(counter)
        if error:
            log.raised(
                counter, first_line(error.decode(errors="replace"), "RuntimeError")
            )

    _kept.append(told := _Tell(tell))
    library.watch(told, f",{','.join(types)},".encode())


def check(library: ctypes.CDLL | None) -> bool:
    """Return whether torch calls the library: a torch may be linked so that it does not."""
    import torch

    heard: list[bytes] = []
    hear = _Tell(lambda given, _: heard.append(given))
    if library is not None:
        library.watch(hear, b",cuda,")
        torch.device("cuda")
        library.watch(_Tell(), b"")
    return bool(heard)
