"""Three hosts in network namespaces of their own making."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from accel_hosts import Hosts


@pytest.fixture
def hosts():
    """Hosts a, b and c, joined by a switch."""
    with Hosts(["a", "b", "c"]) as made:
        yield made
