"""Whether a device still answers after a check that hung, or lost the connection to its device.

A device may be on another host, and its driver may hang. Each check would then wait until its deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accel_core.sandbox import child
from accel_testing.conformance.forks import scale_timeout

__all__ = ["device_failure"]

#: Seconds that a new process may take for one tensor; it imports torch first.
_SECONDS = 120.0


def device_failure(pin: str) -> str:
    """Return why a new process cannot use the device; empty if it can.

    The process makes a tensor on the device and reads it back.
    """
    report = child.run(_use_device, {"pin": pin}, scale_timeout(_SECONDS))
    if report.answer is not None:
        return ""
    return (
        "the device no longer answers: a process with one tensor on it "
        f"{report.ending}{report.last_words}"
    )


def _use_device(
    arguments: dict[str, Any], _begin_stage: Callable[[str], None]
) -> dict[str, float]:
    """In the child: make a tensor on the device, and read it back."""
    import torch  # here: the parent does not import torch

    import accel_core

    accelerator = accel_core.accelerator(arguments["pin"])
    return {"sum": torch.ones(2, device=accelerator.device()).sum().item()}
