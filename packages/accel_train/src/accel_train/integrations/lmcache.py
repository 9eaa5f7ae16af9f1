"""Give LMCache a `DeviceSpec` named `accel` for the chosen accelerator, if it has no spec for its type.

LMCache builds the object that entry points of group `lmcache.device_plugins` name. Ours provides LMCache's
operators in plain torch, which its engine-driven transfers use. Sharing handles between processes is not
supported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import accel_core
from accel_train.integrations._warned import errors_as_warning

__all__ = ["Members"]

#: LMCache's name of the backend, which must be that of the entry point: LMCACHE_DEVICE_BACKEND=accel.
_NAME = "accel"


@functools.cache
def _accelerator_for_lmcache() -> accel_core.Accelerator | None:
    """Return the chosen accelerator; `None` for the CPU, a device that LMCache knows, and after an error."""
    with errors_as_warning("LMCache", "See why: accel why"):
        accelerator = accel_core.get_accelerator()
        native_module = importlib.util.find_spec(
            f"lmcache.v1.platform.devices.{accelerator.device_type}"
        )
        if native_module is None and accelerator.is_accelerator():
            return accelerator
    return None


def _device_type() -> str:
    """Return the accelerator's device type; without an accelerator for LMCache a name that no device has."""
    accelerator = _accelerator_for_lmcache()
    return accelerator.device_type if accelerator else _NAME


class Members:
    """LMCache's `DeviceSpec` for any accelerator; LMCache's defaults stay."""

    device_type = torch_module_name = property(lambda self: _device_type())
    backend_name = _NAME

    def is_available(self) -> bool:
        """Return whether this process chose an accelerator that LMCache has no spec for."""
        return _accelerator_for_lmcache() is not None

    def current_stream(self, device: object) -> Any:
        """Return the current stream of the device."""
        return self._accelerator().current_stream(device)

    def synchronize_device(self, device: object) -> None:
        """Wait for the work on the device."""
        self._accelerator().synchronize(device)

    def create_stream_event(self, device: object) -> Any:
        """Return an event of the device, to record on a stream."""
        return self._accelerator().Event()

    def _accelerator(self) -> Any:
        """Return the accelerator, which exists: LMCache calls this only if `is_available` returned True."""
        return _accelerator_for_lmcache()


def __getattr__(name: str) -> Any:
    if name != "Spec":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = importlib.import_module("lmcache.v1.platform.base.device_spec").DeviceSpec
    return type("AccelDeviceSpec", (Members, base), {})
