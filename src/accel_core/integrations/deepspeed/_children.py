"""Whether the processes that this one starts hear of the activation."""

from __future__ import annotations

from accel_core._support.torch_import import autoload_is_on
from accel_core.detection.entry_points import find_entry_points

__all__ = ["obstacle"]

_GROUP, _NAME = "torch.backends", "accel_core"


def obstacle() -> str:
    """Why child processes would not activate by themselves, and the next step; empty where they do."""
    if not autoload_is_on():
        return (
            "TORCH_DEVICE_BACKEND_AUTOLOAD is off, so torch does not tell child processes of the "
            "activation. Unset it, or start each rank as `python -m accel_core.integrations.deepspeed SCRIPT`"
        )
    if not any(e.name == _NAME for e in find_entry_points(_GROUP)):
        return (
            f"accel-core's entry point in group {_GROUP} is not installed, so torch does not tell child "
            "processes of the activation. Install accel-core again (pip install, or pip install -e)"
        )
    return ""
