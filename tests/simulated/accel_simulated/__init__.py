"""Simulated accelerators for tests: real tensors, streams and memory on a machine without a device.

A *vendor* here is a name of `VENDORS`. `run_on` runs a script in a process in which that vendor's package is
installed, a simulated device underneath. Nothing here is a device or says anything about vendors' hardware.
"""

from accel_simulated.build import CannotBuildError, build
from accel_simulated.launch import Ended, Run, environment, run_on
from accel_simulated.vendors import DEVICES, OWN_DEVICES, VENDORS, Vendor

__all__ = [
    "DEVICES",
    "OWN_DEVICES",
    "VENDORS",
    "CannotBuildError",
    "Ended",
    "Run",
    "Vendor",
    "build",
    "environment",
    "run_on",
]
