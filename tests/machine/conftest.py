"""A machine on disk: /sys, /proc and /dev under a temporary root."""

import pytest
from accel_tests.computers import Computer


@pytest.fixture
def machine(tmp_path):
    return Computer(tmp_path)
