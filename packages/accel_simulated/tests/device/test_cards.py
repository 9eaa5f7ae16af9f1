"""The score card of every first-party backend on its simulated device, as `accel verify` gives it: nothing
fails but what `expected/` names with reasons, and the docs' page of scores tells what came."""

import pytest
from accel_tests.cards import SIMULATED, require_as_recorded, run_simulated

#: By day a device that torch knows, one that it does not, and one with less than a GPU: what breaks a plugin
#: breaks these cards or its own tests.
BY_NIGHT = tuple(name for name in SIMULATED if name not in ("cuda", "acme", "plain"))


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(
            name,
            marks=pytest.mark.nightly(reason="40 CPU seconds a card; by day those of three kinds of device"),
        )
        if name in BY_NIGHT
        else name
        for name in SIMULATED
    ],
)
def test_card(device, built):
    built(device)
    require_as_recorded(run_simulated(device), device)
