"""Fixtures that plugins share, and one of this plugin's own."""

import pytest
from accel_testing.plugin_fixtures import child

from accel_core.detection import discovery

__all__ = ["child"]


@pytest.fixture(autouse=True)
def _this_process_goes_on(monkeypatch):
    """A command's process ends with it: how it loads plugins is not the tests' that follow."""
    monkeypatch.setattr(discovery, "_always_apart", False)
