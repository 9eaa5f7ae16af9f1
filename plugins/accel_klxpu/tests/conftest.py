"""Fixtures of the plugin's tests: torch_xmlir's name is not the backend's, and its device is torch's cuda."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from accel_testing.machines import simulated
from accel_testing.plugin_fixtures import judge, machine, site

__all__ = ["judge", "machine", "site"]


@pytest.fixture
def device() -> Iterator[tuple[ModuleType, Any]]:
    """`(torch.cuda, recorder)`, simulated."""
    with simulated("cuda") as found:
        yield found
