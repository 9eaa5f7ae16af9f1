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
    """Return whether a `DataLoader` should pin memory for the accelerator, for its argument `pin_memory`.

    If `accelerator` is `None`, the current accelerator is used. Returns False for the CPU and for a device
    that does not support pinned memory. Also returns False if torch's current accelerator has a different
    device type, because torch would pin memory for that type. The check initializes the device, so call this
    function in the process that trains.
    """
    if accelerator is None:
        accelerator = accel_core.get_accelerator()
    torch = import_torch()
    # A DataLoader pins memory for torch's current accelerator.
    torch_device = current_torch_accelerator(torch)
    if not accelerator.is_accelerator() or torch_device is None:
        return False
    if torch_device.type != accelerator.device_type:
        return False
    # Pinning fails if the host has no memory left to pin. Batches are then copied from pageable memory.
    with suppress(RuntimeError):
        return accelerator.is_pinned(
            accelerator.pin_memory(torch.empty(1, device="cpu"))
        )
    return False
