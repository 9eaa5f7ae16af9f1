"""Find this process's simulated device, and the package that can simulate devices.

The package has an entry point in the group `accel.simulators`. A simulation can begin only when Python
starts.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel_core import Provenance

__all__ = ["description", "simulated_device", "simulator"]

#: The module that every process with a simulated device has imported.
_STARTED = "accel_simulated.at_start"
_GROUP = "accel.simulators"


def description() -> str:
    """Return a description of the simulated device, such as `"acme:2 by accel-simulated 0.1.0"`.

    The result is an empty string if nothing is simulated.
    """
    simulation = sys.modules.get(_STARTED)
    if simulation is None or not simulated_device()[0]:
        return ""
    text: str = simulation.describe(os.environ)
    return text


def simulated_device() -> tuple[str, str]:
    """Return the simulated backend and its torch device type, such as `("klxpu", "cuda")`.

    Both strings are empty if this process has no simulated device.
    """
    simulation = sys.modules.get(_STARTED)
    if simulation is None:
        return "", ""
    names: tuple[str, str] = simulation.backend_and_device_type()
    return names


def simulator() -> Provenance | None:
    """Return the entry point of the package that simulates devices, without loading it.

    The result is `None` if no such package is installed.
    """
    from accel_core.settings import permitted_entry_points

    return next(iter(permitted_entry_points(_GROUP)), None)
