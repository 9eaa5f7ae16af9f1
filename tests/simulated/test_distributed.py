"""Two processes, a device each: collectives and a data-parallel step under the vendor's own backend name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_simulated import OWN_DEVICES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("vendor", [name for name, vendor in OWN_DEVICES.items() if vendor.collective])
def test_two_processes(vendor: str, simulated: Callable[..., Any]) -> None:
    run = simulated(vendor, "simulated_checks.data_parallel:step", vendor, processes=2, timeout=300)
    expected = [{"rank": rank, "backend": OWN_DEVICES[vendor].collective, "device": rank} for rank in (0, 1)]
    assert run.answers == expected
