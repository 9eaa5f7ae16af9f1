"""Fixtures that plugins share."""

from accel_testing.plugin_fixtures import device, machine

__all__ = ["device", "machine"]
