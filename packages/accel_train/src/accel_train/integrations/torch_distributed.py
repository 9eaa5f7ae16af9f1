"""Provide `init_process_group("staged")` without importing accel_train, for torch 2.14 and newer.

torch calls what entry points of group `torch.distributed.backends` name when a program names that backend.
"""

from __future__ import annotations

import accel_core
from accel_train.staged import register

__all__ = ["staged"]


def staged() -> None:
    """Register `staged` with torch for the chosen accelerator. Raises what choosing raises."""
    register(accel_core.get_accelerator())
