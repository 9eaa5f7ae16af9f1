"""Provide a `DeviceSpec` named `accel` for LMCache, for a chosen accelerator that LMCache does not support.

LMCache creates the specs that entry points of the group `lmcache.device_plugins` name. accel-train's spec
uses LMCache's operators in pure torch, which engine-driven transfers call. Sharing memory handles between
processes is not supported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import accel_core
from accel_train.integrations._warned import errors_as_warning

__all__ = ["Members"]

#: LMCache's name for this backend, which must equal the entry point's name: LMCACHE_DEVICE_BACKEND=accel.
_NAME = "accel"


@functools.cache
def _accelerator_for_lmcache() -> accel_core.Accelerator | None:
    """Return the chosen accelerator.

    Returns `None` for the CPU, for a device that LMCache supports, and if choosing an accelerator failed.
    """
    with errors_as_warning("LMCache", "Next step: run accel why"):
        accelerator = accel_core.get_accelerator()
        # LMCache has a module for each device type that it supports itself.
        native_module = importlib.util.find_spec(
            f"lmcache.v1.platform.devices.{accelerator.device_type}"
        )
        if native_module is None and accelerator.is_accelerator():
            return accelerator
    # The device is the CPU or a device that LMCache supports itself, or a warning has reported an error.
    return None


def _device_type() -> str:
    """Return the accelerator's device type, or `accel` if there is no accelerator for LMCache."""
    accelerator = _accelerator_for_lmcache()
    if accelerator is None:
        return _NAME
    return accelerator.device_type


class Members:
    """The members of LMCache's `DeviceSpec` that accel-train's spec overrides."""

    device_type = torch_module_name = property(lambda self: _device_type())
    backend_name = _NAME

    def is_available(self) -> bool:
        """Return whether this process chose an accelerator for which LMCache itself has no spec."""
        return _accelerator_for_lmcache() is not None

    def current_stream(self, device: object) -> Any:
        """Return the device's current stream."""
        return self._accelerator().current_stream(device)

    def synchronize_device(self, device: object) -> None:
        """Wait until the device has finished its queued work."""
        self._accelerator().synchronize(device)

    def create_stream_event(self, device: object) -> Any:
        """Return a new accelerator event, which LMCache can record on a stream."""
        return self._accelerator().Event()

    def _accelerator(self) -> Any:
        """Return the accelerator for LMCache."""
        # Not None here, because LMCache checks is_available() first.
        return _accelerator_for_lmcache()


def __getattr__(name: str) -> Any:
    if name != "Spec":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The class is created on first use, because importing its base class imports LMCache.
    base = importlib.import_module("lmcache.v1.platform.base.device_spec").DeviceSpec
    return type("AccelDeviceSpec", (Members, base), {})
