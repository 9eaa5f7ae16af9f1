"""Whether the processes that this one starts hear of the activation."""

from __future__ import annotations

import os

from accel_core.toolkit import AUTOLOAD, autoload_is_on, packages
from accel_train.deepspeed import _installed
from accel_train_startup import AT_START

__all__ = ["obstacle"]

#: What torch calls in a child, and what that calls in turn: group and name of our entry points.
_ENTRY_POINTS = (("torch.backends", "accel_train"), ("accel.integrations", "deepspeed"))


def obstacle() -> str:
    """Why child processes would not activate by themselves, and the next step; empty where they do."""
    if _installed.asks_us():
        return ""
    if not autoload_is_on() and AT_START not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return (
            f"{AUTOLOAD} is off, so torch does not tell child processes of the "
            "activation. Unset it, or start each rank as `python -m accel_train.deepspeed SCRIPT`"
        )
    for group, name in _ENTRY_POINTS:
        if not any(e.name == name for e in packages.entry_points(group)):
            return (
                f"accel-train's entry point in group {group} is not installed, so torch does not tell child "
                "processes of the activation. Install accel-train again (pip install, or pip install -e)"
            )
    return ""
