"""Devices that a distribution simulates: which one this process has, and what can simulate one.

The simulator is an entry point of the group `accel.simulators`; a simulation starts with Python or never.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel_core import Provenance

__all__ = ["description", "simulated_device", "simulator"]

#: The module that is imported where a device is simulated.
_STARTED = "accel_simulated.at_start"
_GROUP = "accel.simulators"


def description() -> str:
    """Return what this process simulates, such as `"acme:2 by accel-simulated 0.1.0"`; empty if nothing."""
    simulation = sys.modules.get(_STARTED)
    if simulation is None or not simulated_device()[0]:
        return ""
    text: str = simulation.describe(os.environ)
    return text


def simulated_device() -> tuple[str, str]:
    """Return the backend that this process simulates, and torch's device type: `("klxpu", "cuda")`.

    Both are empty if nothing is simulated.
    """
    simulation = sys.modules.get(_STARTED)
    if simulation is None:
        return "", ""
    device: tuple[str, str] = simulation.backend_and_device_type()
    return device


def simulator() -> Provenance | None:
    """Return the entry point of the package that simulates devices, not loaded; `None` if there is none."""
    from accel_core.settings import permitted_entry_points

    return next(iter(permitted_entry_points(_GROUP)), None)
