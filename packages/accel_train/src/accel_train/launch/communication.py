"""Find the communication backend for an accelerator's tensors, before a process starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from accel_core.errors import LaunchError
from accel_train.launch.variables import ACCEL_COMMUNICATION_BACKEND
from accel_train.staged import obstacle, register

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["communication_of"]


def communication_of(accelerator: Accelerator, named: str | None = None) -> str:
    """Return the name for `torch.distributed.init_process_group`: `"hccl"`, `"staged"`.

    `named` takes precedence, then `ACCEL_COMMUNICATION_BACKEND`, which `accel run` sets, then the
    accelerator's own backend. Raises `LaunchError` if torch has no such backend for the device type.
    """
    if accelerator.device_name() != "cpu":
        register(accelerator)  # it may be named for a device that has another
    own = accelerator.communication_backend_name()
    said = named or ACCEL_COMMUNICATION_BACKEND.read(os.environ)
    name = (said or own).lower()
    if name == own:
        # accel run names the accelerator's own, which may turn out not to work; what is asked for stays.
        prepared = accelerator._prepare_communication()
        name = name if named else prepared
    problem = obstacle(name, accelerator.device_name())
    if problem:
        source = "" if said else f"{accelerator.name} declares the communication backend {name!r}, and "
        raise LaunchError(f"{source}{problem}")
    return name
