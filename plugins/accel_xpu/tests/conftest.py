"""Fixtures that plugins share."""

from accel_testing.plugin_fixtures import judge, site

__all__ = ["judge", "site"]
