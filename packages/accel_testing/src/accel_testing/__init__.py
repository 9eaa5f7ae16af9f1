"""Test code for accelerators without a device: fake backends, faults on request, child processes.

    from accel_testing import fake, installed

    with installed(fake("acme", devices=2), isolated=True):
        train()          # accel_core.get_accelerator() is acme, which computes on the processor

Nothing here is a device, or says anything about a vendor's. Needs no pytest, and works under it. Importing
this imports neither torch nor a vendor.
"""

from __future__ import annotations

from accel_testing.accelerator import Call, FakeAccelerator
from accel_testing.children import Ended, run
from accel_testing.distributions import write_distribution
from accel_testing.fakes import Fake, fake
from accel_testing.faults import Fault
from accel_testing.installing import Installation, installed
from accel_testing.layers import environment

__all__ = [
    "Call",
    "Ended",
    "Fake",
    "FakeAccelerator",
    "Fault",
    "Installation",
    "environment",
    "fake",
    "installed",
    "run",
    "write_distribution",
]
