"""Check whether child processes of this process would activate the integration."""

from __future__ import annotations

import os

from accel_core import packages
from accel_core.torch_import import AUTOLOAD, autoload_is_on
from accel_train.deepspeed import _installed
from accel_train_startup import AT_START

__all__ = ["obstacle"]

#: What torch calls in a child, and what that calls in turn: group and name of our entry points.
_ENTRY_POINTS = (("torch.backends", "accel_train"), ("accel.integrations", "deepspeed"))


def obstacle() -> str:
    """Return why child processes would not activate by themselves, with the next step; empty if they do."""
    if _installed.asks_us():
        return ""
    if not autoload_is_on() and AT_START not in os.environ.get("PYTHONPATH", "").split(
        os.pathsep
    ):
        return (
            f"{AUTOLOAD} is off, so child processes do not activate the "
            "integration. Unset it, or start each rank as `python -m accel_train.deepspeed SCRIPT`"
        )
    for group, name in _ENTRY_POINTS:
        if not any(e.name == name for e in packages.entry_points(group)):
            return (
                f"accel-train's entry point in group {group} is not installed, so child processes do "
                "not activate the integration. Install accel-train again (pip install, or pip install -e)"
            )
    return ""
