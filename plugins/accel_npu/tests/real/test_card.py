"""What the checks of accel_testing.conformance promise of every accelerator, on the real torch_npu."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_tests.cards import require_as_recorded
from checks.card import NAME, card


@pytest.mark.nightly(reason="a score card: a minute")
def test_card(stand_in: Path) -> None:
    """Nothing fails but what `expected.toml` names, and the docs' page of scores tells what came."""
    require_as_recorded(card(stand_in), NAME)
