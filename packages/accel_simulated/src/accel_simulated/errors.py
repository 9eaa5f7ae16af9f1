"""Errors that are raised when the simulated device is built or loaded."""

from __future__ import annotations

from accel_core.errors import AccelError

__all__ = ["BuildError", "CannotBuildError"]


class BuildError(AccelError, RuntimeError):
    """An error raised if the simulated device's library cannot be compiled, written or loaded."""


class CannotBuildError(BuildError):
    """An error raised if a tool needed to build the simulated device is missing.

    Tests that need the device are then skipped.
    """
