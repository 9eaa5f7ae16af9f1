"""Provide `init_process_group("staged")` without importing accel_train, for torch 2.14 and newer.

When a program names a communication backend, torch calls the function that the backend's entry point of the
group `torch.distributed.backends` names.
"""

from __future__ import annotations

import accel_core
from accel_train.staged import register

__all__ = ["staged"]


def staged() -> None:
    """Register the communication backend `staged` with torch for the chosen accelerator.

    Raises the same errors as `get_accelerator()`.
    """
    register(accel_core.get_accelerator())
