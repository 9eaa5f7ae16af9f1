"""A wrong name, or a call that does not fit, planted into a copy of any plugin, is found in its source."""

from __future__ import annotations

import pytest
from accel_contracts.planting import FAULTS, MARKED, plant
from accel_contracts.plugins import everything
from accel_contracts.static import scan


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_reading_the_source_finds_it(plugin, fault, tmp_path):
    whole, device = everything(plugin)
    found = scan(plant(plugin, tmp_path / "src", fault).read_text(), whole, device).violations
    assert any("empty_cashe is not in" in v or "nothing" in v or "too many" in v for v in found)


def test_reading_passes_over_what_is_looked_for(plugin, tmp_path):
    whole, device = everything(plugin)
    found = scan(plant(plugin, tmp_path / "src", MARKED).read_text(), whole, device).violations
    assert not any("empty_casket" in violation for violation in found)
