"""A machine on disk: /sys, /proc and /dev under a temporary root."""

from __future__ import annotations

from pathlib import Path

import pytest
from accel_tests.computers import Computer


@pytest.fixture
def machine(tmp_path: Path) -> Computer:
    return Computer(tmp_path)
