"""Moved to accel-train; this module says so for one release."""

raise ImportError("accel_core.distributed moved: pip install accel-train, and import accel_train")
