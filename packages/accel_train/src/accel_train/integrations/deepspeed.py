"""Provide an entry point of group `deepspeed.accelerators`, for a DeepSpeed that reads this group.

No release of DeepSpeed does; lab/contrib/deepspeed-entry-points.patch adds it to 0.19.8.
"""

from __future__ import annotations

import os

import accel_train_startup as startup
from accel_core import Accelerator, get_accelerator
from accel_core.settings import DS_ACCELERATOR
from accel_train.deepspeed import activate
from accel_train.deepspeed._install import supported_by_deepspeed

__all__ = ["accelerator"]

#: The entry point's name: as a value of `DS_ACCELERATOR` it selects our accelerator for any device.
_NAME = "accel"


def accelerator() -> Accelerator | None:
    """Activate, and return our accelerator; return `None` to leave a device to DeepSpeed's own class.

    DeepSpeed uses its own class for a device that it knows, except in two cases: `DS_ACCELERATOR` names
    something that DeepSpeed does not support, or a parent process was activated.
    """
    pinned_name = os.environ.get(DS_ACCELERATOR.name, "").strip().lower()
    if pinned_name == _NAME:
        # No backend has this name. Child processes are activated, and do not need it.
        del os.environ[DS_ACCELERATOR.name]
    integrations = startup.names(os.environ.get(startup.VARIABLE, ""))
    is_activated = "deepspeed" in integrations
    if not pinned_name and not is_activated:
        device_name = get_accelerator().device_name()
        if device_name in supported_by_deepspeed():
            return None
    return activate().accelerator
