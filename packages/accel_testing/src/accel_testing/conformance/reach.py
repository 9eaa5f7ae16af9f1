"""Test whether a device still works after a check that hung or lost the connection to the device.

A device may be on another host, and its driver may hang. All later checks would then run into their time
limits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accel_core.sandbox import child
from accel_testing.conformance.forks import scale_timeout

__all__ = ["device_failure"]

#: The number of seconds that a new process may take to import torch and create one tensor.
_SECONDS = 120.0


def device_failure(pin: str) -> str:
    """Return why a new process cannot use the device, or an empty string if it can.

    To test this, the process creates a tensor on the device and reads it back.
    """
    report = child.run(_use_device, {"pin": pin}, scale_timeout(_SECONDS))
    if report.answer is not None:
        return ""
    return (
        "the device no longer responds: a process that creates one tensor on it "
        f"{report.ending}{report.last_words}"
    )


def _use_device(
    arguments: dict[str, Any], _begin_stage: Callable[[str], None]
) -> dict[str, float]:
    """Create a tensor on the device, and read it back. This function runs in a child process."""
    import torch  # imported here, because the parent process does not import torch

    import accel_core

    accelerator = accel_core.accelerator(arguments["pin"])
    return {"sum": torch.ones(2, device=accelerator.device()).sum().item()}
