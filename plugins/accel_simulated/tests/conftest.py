"""Fixtures that plugins share."""

from accel_testing.plugin_fixtures import child

__all__ = ["child"]
