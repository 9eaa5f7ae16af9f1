"""Page-locked memory for a `DataLoader`, where it is safe and helps."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import accel_core
from accel_core.interface.devices import current_torch_accelerator
from accel_core.torch_import import import_torch

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["can_pin_memory"]


def can_pin_memory(accelerator: Accelerator | None = None) -> bool:
    """Return the value for `pin_memory` of a `DataLoader`: whether pinned batches help this accelerator.

    `accelerator`: `None` means the current one. Returns False for the CPU, for a device without page-locked
    memory, and for an accelerator that torch does not regard as its own: torch would pin for another device.
    This starts the device, so call it in the process that trains.
    """
    asked = accel_core.get_accelerator() if accelerator is None else accelerator
    torch = import_torch()
    torchs = current_torch_accelerator(torch)
    if not asked.is_accelerator() or torchs is None or torchs.type != asked.device_type:
        return False
    with suppress(
        RuntimeError
    ):  # the host has no more of it to lock, and a batch can be copied without
        return asked.is_pinned(asked.pin_memory(torch.empty(1)))
    return False
