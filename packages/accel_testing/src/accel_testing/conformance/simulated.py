"""Devices that a distribution simulates: which one this process has, and who could give it one.

Who simulates announces a module in group `accel.simulators`, and begins with Python or not at all.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel_core import Provenance

__all__ = ["device", "simulator", "told"]

_STARTED = "accel_simulated.at_start"
_GROUP = "accel.simulators"


def told() -> str:
    """Return what this process simulates, such as `"acme:2 by accel-simulated 0.1.0"`; empty if nothing."""
    started = sys.modules.get(_STARTED)
    words: str = started.told(os.environ) if started is not None and device()[0] else ""
    return words


def device() -> tuple[str, str]:
    """Return the backend that this process simulates, and torch's device type: `("klxpu", "cuda")`."""
    started = sys.modules.get(_STARTED)
    found: tuple[str, str] = started.device() if started is not None else ("", "")
    return found


def simulator() -> Provenance | None:
    """Return the entry point of the package that simulates devices, not loaded; `None` if there is none."""
    from accel_core.settings import permitted_entry_points

    return next(iter(permitted_entry_points(_GROUP)), None)
