"""The score card of every first-party backend on its simulated device, as `accel verify` gives it: nothing
fails but what `expected/` names with reasons, and the docs' page of scores tells what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

from accel_tests.cards import SIMULATED, require_as_recorded, run_simulated

pytestmark = pytest.mark.slow


#: Plugins that hold little beside their declaration: what breaks them breaks another's card too; and npu's,
#: which runs by day on the real torch_npu.
BY_NIGHT = ("mlu", "sdaa", "supa", "klxpu", "npu")


@pytest.mark.parametrize(
    "device",
    [pytest.param(name, marks=pytest.mark.nightly) if name in BY_NIGHT else name for name in SIMULATED],
)
def test_card(device: str, simulated: Callable[..., Any]) -> None:
    simulated(device, "print(0)")  # builds the device, or skips
    require_as_recorded(run_simulated(device), device)
