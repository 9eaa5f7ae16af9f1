"""The staged process group on a simulated device without collectives, and on one that also has streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

CHECKS = "accel_simulated.checks.staged"


@pytest.mark.parametrize(("vendor", "processes"), [("plain", 2), ("plain", 3), ("acme", 2)])
@pytest.mark.parametrize("check", ["every_collective", "reductions"])
def test_equals_gloo(check: str, vendor: str, processes: int, simulated: Callable[..., Any]) -> None:
    run = simulated(vendor, f"{CHECKS}:{check}", vendor, processes=processes, timeout=300)
    assert [answer["rank"] for answer in run.answers] == list(range(processes))
    assert all(answer["comparisons"] > 500 for answer in run.answers)
