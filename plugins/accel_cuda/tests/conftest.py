"""Fixtures that plugins share."""

from accel_tests.plugin_fixtures import child

__all__ = ["child"]
