"""DeepSpeed: an entry point in group `deepspeed.accelerators`, for a DeepSpeed that looks there.

No release of DeepSpeed does; lab/contrib/deepspeed-entry-points.patch teaches it to 0.19.8.
"""

from __future__ import annotations

import os

import accel_train_startup as startup
from accel_core import Accelerator, get_accelerator
from accel_core.settings import DS_ACCELERATOR
from accel_train.deepspeed import activate
from accel_train.deepspeed._placing import known_to_deepspeed

__all__ = ["accelerator"]

#: The entry point's name, by which `DS_ACCELERATOR` asks for ours whatever the device is.
_NAME = "accel"


def accelerator() -> Accelerator | None:
    """Activate, and return our accelerator; return `None` to leave a device to DeepSpeed's own class.

    DeepSpeed uses its own class for a device that it knows, except in two cases: `DS_ACCELERATOR` names
    something that DeepSpeed does not know, or a parent process was activated.
    """
    wanted = os.environ.get(DS_ACCELERATOR.name, "").strip().lower()
    if wanted == _NAME:
        del os.environ[
            DS_ACCELERATOR.name
        ]  # no backend has that name; child processes are activated
    is_free = not wanted and "deepspeed" not in startup.names(
        os.environ.get(startup.VARIABLE, "")
    )
    if is_free and get_accelerator().device_name() in known_to_deepspeed():
        return None
    return activate().accelerator
