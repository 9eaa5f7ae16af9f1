"""Fixtures that plugins share."""

from accel_tests.plugin_fixtures import judge, site

__all__ = ["judge", "site"]
