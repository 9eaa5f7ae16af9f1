"""Check whether a `DataLoader` should use pinned memory for the accelerator."""

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

    `accelerator`: `None` means the current one. Returns False for the CPU, for a device without pinned
    memory, and for an accelerator that torch does not regard as its own: torch would pin for another device.
    This starts the device, so call it in the process that trains.
    """
    if accelerator is None:
        accelerator = accel_core.get_accelerator()
    torch = import_torch()
    # A DataLoader pins memory for the device that torch regards as its accelerator.
    torch_device = current_torch_accelerator(torch)
    if not accelerator.is_accelerator() or torch_device is None:
        return False
    if torch_device.type != accelerator.device_type:
        return False
    # The host may have no memory left to pin; a batch is then copied from pageable memory.
    with suppress(RuntimeError):
        return accelerator.is_pinned(accelerator.pin_memory(torch.empty(1)))
    return False
