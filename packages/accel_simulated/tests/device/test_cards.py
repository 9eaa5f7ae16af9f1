"""The conformance report of every first-party backend on its simulated device, as `accel verify` gives it."""

import pytest
from accel_tests.cards import SIMULATED, require_as_recorded, run_simulated

#: By day a device that torch knows, and one that it does not, with less than a GPU: what breaks a plugin
#: breaks these cards or its own tests.
BY_DAY = ("cuda", "plain")


NIGHT = pytest.mark.nightly(
    reason="40 CPU seconds a card; by day those of two kinds of device"
)


@pytest.mark.parametrize(
    "device",
    [pytest.param(name, marks=() if name in BY_DAY else NIGHT) for name in SIMULATED],
)
def test_card(device, built):
    built(device)
    require_as_recorded(run_simulated(device), device)
