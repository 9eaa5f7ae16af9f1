"""bitsandbytes: add the chosen accelerator's device type to its set of supported device types.

bitsandbytes calls the functions that entry points of group `bitsandbytes.backends` name, while it is
imported. Its kernels in plain torch work on any device type, but libraries such as Transformers check the set
before they call them.
"""

from __future__ import annotations

import importlib

import accel_core
from accel_train.doors._warned import warned

__all__ = ["register"]


def register() -> None:
    """Add the device type. An error becomes a warning, because it would stop the import of bitsandbytes."""
    with warned("bitsandbytes", "See why: accel why"):
        ours = accel_core.get_accelerator()
        importlib.import_module("bitsandbytes").supported_torch_devices.add(ours.device_type)
