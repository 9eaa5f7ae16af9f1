"""Provide an entry point of the group `deepspeed.accelerators`, for a DeepSpeed that reads this group.

No release of DeepSpeed reads the group; lab/contrib/deepspeed-entry-points.patch adds support to 0.19.8.
"""

from __future__ import annotations

import os

import accel_train_startup as startup
from accel_core import Accelerator, get_accelerator
from accel_core.settings import DS_ACCELERATOR
from accel_train.deepspeed import activate
from accel_train.deepspeed._install import supported_by_deepspeed

__all__ = ["accelerator"]

#: The entry point's name. `DS_ACCELERATOR=accel` selects accel_core's accelerator for any device.
_NAME = "accel"


def accelerator() -> Accelerator | None:
    """Activate the integration and return accel_core's accelerator, or `None` to keep DeepSpeed's own.

    Returns `None` if DeepSpeed supports the device, unless `DS_ACCELERATOR` is set or a parent process has
    called `activate()`. Raises the same errors as `accel_train.deepspeed.activate()`.
    """
    pinned_name = os.environ.get(DS_ACCELERATOR.name, "").strip().lower()
    if pinned_name == _NAME:
        # No backend has this name. Child processes activate the integration without the variable.
        del os.environ[DS_ACCELERATOR.name]
    integrations = startup.split_names(
        os.environ.get(startup.INTEGRATIONS_VARIABLE, "")
    )
    is_activated = "deepspeed" in integrations
    if not pinned_name and not is_activated:
        device_name = get_accelerator().device_name()
        if device_name in supported_by_deepspeed():
            return None  # DeepSpeed uses its own accelerator.
    return activate().accelerator
