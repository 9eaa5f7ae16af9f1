"""bitsandbytes: the chosen accelerator's device type among those that it calls supported.

bitsandbytes calls what entry points of group `bitsandbytes.backends` name, while it is imported. Its kernels
in plain torch take any device type; libraries such as Transformers ask the set before they call them.
"""

from __future__ import annotations

import importlib

import accel_core
from accel_train.doors._warned import warned

__all__ = ["register"]


def register() -> None:
    """Add the device type; an error becomes a warning, as it would end the import of bitsandbytes."""
    with warned("bitsandbytes", "See why: accel why"):
        ours = accel_core.get_accelerator()
        importlib.import_module("bitsandbytes").supported_torch_devices.add(ours.device_type)
