"""Record in one process of a run, from Python's start."""

from __future__ import annotations

import ctypes
import os
from types import ModuleType

from accel_simulated import imports
from accel_simulated.detector import VARIABLE, environment, names
from accel_simulated.detector.log import Log

__all__ = ["begin"]

_log: Log
_foreign: dict[str, names.Names]
_library: ctypes.CDLL | None = None


def begin(own: str) -> None:
    """Start to record code for other vendors, in a process that simulates torch's device type `own`."""
    global _log, _foreign
    _log = Log(os.environ[VARIABLE])
    _foreign = names.foreign(own)
    environment.watch(_log, _foreign)
    imports.change("torch", before=_before_torch, after=_with_torch)


def _before_torch() -> None:
    """Stand before torch's own functions, which it looks up when it is loaded."""
    from accel_simulated.detector import strings

    global _library
    _library = strings.load(os.environ[VARIABLE])


def _with_torch(_: ModuleType) -> None:
    """Watch what came with torch."""
    from accel_simulated.detector import strings, torch_names

    torch_names.watch(_log, _foreign)
    if _library is not None and strings.check(_library):
        strings.watch(_library, _log, _foreign)
    else:
        import torch

        _log.note(
            f"torch {torch.__version__} does not tell of device strings: none is here"
        )
