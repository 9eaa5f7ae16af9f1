"""Moved to accel-train; this module says so for one release."""

raise ImportError("accel_core.integrations moved: pip install accel-train, and import accel_train")
