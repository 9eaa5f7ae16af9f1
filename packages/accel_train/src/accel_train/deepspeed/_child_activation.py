"""Check whether child processes of this process would activate the integration."""

from __future__ import annotations

import os

from accel_core import packages
from accel_core.torch_import import AUTOLOAD, autoload_is_on
from accel_train.deepspeed import _release
from accel_train_startup import STARTUP_FOLDER

__all__ = ["missing_activation_reason"]

#: Group and name of the entry point that torch calls in a child process, and then of the entry point that
#: accel_train_startup calls.
_ENTRY_POINTS = (("torch.backends", "accel_train"), ("accel.integrations", "deepspeed"))


def missing_activation_reason() -> str:
    """Return why child processes would not activate the DeepSpeed integration, and how to fix this.

    Returns an empty string if child processes activate the integration.
    """
    if _release.has_accel_core_support():
        return ""
    # With this folder on PYTHONPATH, Python itself starts the integration, without torch's autoload.
    python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not autoload_is_on() and STARTUP_FOLDER not in python_path:
        return (
            "torch's autoload is off, so child processes do not activate the DeepSpeed integration. Next "
            f"step: unset {AUTOLOAD}, or start each rank as `python -m accel_train.deepspeed SCRIPT`"
        )
    for group, name in _ENTRY_POINTS:
        installed_names = {entry.name for entry in packages.entry_points(group)}
        if name not in installed_names:
            return (
                f"accel-train's entry point in the group {group} is not installed, so child processes do not "
                "activate the DeepSpeed integration. Next step: install accel-train again (pip install, or "
                "pip install -e)"
            )
    return ""
