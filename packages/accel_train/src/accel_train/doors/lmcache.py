"""LMCache: a `DeviceSpec` named `accel` for the chosen accelerator, if LMCache has no spec for its type.

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
from accel_train.doors._warned import warned

__all__ = ["Members"]

#: LMCache's name of the backend, which must be that of the entry point: LMCACHE_DEVICE_BACKEND=accel.
NAME = "accel"


@functools.cache
def _chosen() -> accel_core.Accelerator | None:
    """The accelerator for LMCache; `None` for the CPU, for a device with a spec of LMCache's, on an error."""
    with warned("LMCache", "See why: accel why"):
        ours = accel_core.get_accelerator()
        own = importlib.util.find_spec(
            f"lmcache.v1.platform.devices.{ours.device_type}"
        )
        return ours if own is None and ours.is_accelerator() else None
    return None


class Members:
    """LMCache's `DeviceSpec` for any accelerator; LMCache's defaults stay."""

    #: A device that LMCache has no spec for has a type of its own; without one, a name that no device has.
    device_type = torch_module_name = property(
        lambda self: ours.device_type if (ours := _chosen()) else NAME
    )
    backend_name = NAME

    def is_available(self) -> bool:
        """Return whether this process chose an accelerator that LMCache has no spec for."""
        return _chosen() is not None

    def current_stream(self, device: object) -> Any:
        """Return the current stream of the device."""
        return self._ours().current_stream(device)

    def synchronize_device(self, device: object) -> None:
        """Wait for the work on the device."""
        self._ours().synchronize(device)

    def create_stream_event(self, device: object) -> Any:
        """Return an event of the device, to record on a stream."""
        return self._ours().Event()

    def _ours(self) -> Any:
        return _chosen()


def __getattr__(name: str) -> Any:
    if name != "Spec":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    base = importlib.import_module("lmcache.v1.platform.base.device_spec").DeviceSpec
    return type("AccelDeviceSpec", (Members, base), {})
