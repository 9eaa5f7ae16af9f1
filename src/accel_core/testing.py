"""Moved to accel-testing; this module says so for one release."""

raise ImportError("accel_core.testing moved: pip install accel-testing, and import accel_testing")
