"""Two processes, a device each: collectives and a data-parallel step without any plugin.

With each vendor's own, through its plugin: level 3 of the cards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_simulated import VENDORS

pytestmark = pytest.mark.slow


def test_two_processes(simulated: Callable[..., Any]) -> None:
    run = simulated("acme", "simulated_checks.data_parallel:step", "acme", processes=2, timeout=300)
    expected = [{"rank": rank, "backend": VENDORS["acme"].collective, "device": rank} for rank in (0, 1)]
    assert run.answers == expected
