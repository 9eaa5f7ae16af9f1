"""Accelerators that each break one promise, and the check that is meant to catch it."""
