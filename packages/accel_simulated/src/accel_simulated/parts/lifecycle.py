"""Start the vendor's runtime on first use, and then make the calls that were deferred until the start."""

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
_deferred_calls: list[Callable[[], Any]] = []
_is_started = False
_is_forked_child = False


@lru_cache
def cached_generators() -> tuple[torch.Generator, ...]:
    """Return the default random number generator of each visible device. The result is cached."""
    return device.default_generators()


def started_accelerator() -> Any:
    """Start the simulated runtime if it has not started yet, and return the module `torch.accelerator`."""
    _lazy_init()
    return torch.accelerator


def is_available() -> bool:
    return device.count > 0


def is_initialized() -> bool:
    return _is_started and not _is_forked_child


def _is_in_bad_fork() -> bool:
    return _is_forked_child


def init() -> None:
    _lazy_init()


def _lazy_init() -> None:
    """Start the simulated runtime on the first call, and then make the deferred calls."""
    global _is_started
    if _is_started and not _is_forked_child:
        return
    with _lock:
        if _is_forked_child:
            raise RuntimeError(
                f"Cannot re-initialize {device.name()} in forked subprocess"
            )
        if not device.count:
            raise RuntimeError(device.no_device_message())
        if not _is_started:
            _is_started = True
            _set_module_attributes(sys.modules[f"torch.{device.vendor.name}"])
            # The threads of the streams do not exist in a forked child.
            os.register_at_fork(after_in_child=_mark_as_forked)
        while _deferred_calls:
            deferred_call = _deferred_calls.pop(0)
            deferred_call()


def _set_module_attributes(module: Any) -> None:
    """Set the attributes of `torch.<name>` that the vendor's runtime sets when it starts."""
    if hasattr(module, "_initialized"):
        module._initialized = True
    if hasattr(module, "default_generators"):
        module.default_generators = cached_generators()


def _mark_as_forked() -> None:
    global _is_forked_child
    _is_forked_child = True


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    """Make a call now if the runtime has started, or defer it until the runtime starts."""
    if is_initialized():
        callable()
    else:
        _deferred_calls.append(callable)
