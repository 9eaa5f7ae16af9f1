"""Start the vendor's runtime at its first use, and then call the functions deferred until the start."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from accel_simulated import device

__all__ = [
    "_is_in_bad_fork",
    "_lazy_call",
    "_lazy_init",
    "init",
    "is_available",
    "is_initialized",
]

_lock = threading.RLock()
_waiting_calls: list[Callable[[], Any]] = []
_running = False
_forked = False


@lru_cache
def generators() -> tuple[torch.Generator, ...]:
    """Return the default generator of each device."""
    return device.generators()


def running() -> Any:
    """Start the runtime if necessary, and return the module `torch.accelerator`."""
    _lazy_init()
    return torch.accelerator


def is_available() -> bool:
    return device.count > 0


def is_initialized() -> bool:
    return _running and not _forked


def _is_in_bad_fork() -> bool:
    return _forked


def init() -> None:
    _lazy_init()


def _lazy_init() -> None:
    global _running
    if _running and not _forked:
        return
    with _lock:
        if _forked:
            raise RuntimeError(
                f"Cannot re-initialize {device.name()} in forked subprocess"
            )
        if not device.count:
            raise RuntimeError(device.no_device_message())
        if not _running:
            _running = True
            _set_module_attributes(sys.modules[f"torch.{device.vendor.name}"])
            os.register_at_fork(
                after_in_child=_mark_fork
            )  # the streams' threads do not survive a fork
        while _waiting_calls:
            _waiting_calls.pop(0)()


def _set_module_attributes(module: Any) -> None:
    """Set the attributes by which the vendor's module shows that the runtime has started."""
    if hasattr(module, "_initialized"):
        module._initialized = True
    if hasattr(module, "default_generators"):
        module.default_generators = generators()


def _mark_fork() -> None:
    global _forked
    _forked = True


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    if is_initialized():
        callable()
    else:
        _waiting_calls.append(callable)
