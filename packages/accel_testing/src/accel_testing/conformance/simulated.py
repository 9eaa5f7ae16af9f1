"""Find the simulated device of this process, and the package that can simulate devices.

That package has an entry point of the group `accel.simulators`. A simulation can only start with Python.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel_core import Provenance

__all__ = ["description", "simulated_device", "simulator"]

#: The module that is imported in a process with a simulated device.
_STARTED = "accel_simulated.at_start"
_GROUP = "accel.simulators"


def description() -> str:
    """Return a description of the simulation: `"acme:2 by accel-simulated 0.1.0"`; empty if there is none."""
    simulation = sys.modules.get(_STARTED)
    if simulation is None or not simulated_device()[0]:
        return ""
    text: str = simulation.describe(os.environ)
    return text


def simulated_device() -> tuple[str, str]:
    """Return the simulated backend, and torch's device type for it: `("klxpu", "cuda")`.

    Both are empty if this process has no simulated device.
    """
    simulation = sys.modules.get(_STARTED)
    if simulation is None:
        return "", ""
    names: tuple[str, str] = simulation.backend_and_device_type()
    return names


def simulator() -> Provenance | None:
    """Return the entry point of the package that simulates devices, not loaded; `None` if there is none."""
    from accel_core.settings import permitted_entry_points

    return next(iter(permitted_entry_points(_GROUP)), None)
