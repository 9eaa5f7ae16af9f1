"""Errors raised when the simulated device is built or loaded."""

from __future__ import annotations

from accel_core.errors import AccelError

__all__ = ["BuildError", "CannotBuildError"]


class BuildError(AccelError, RuntimeError):
    """The simulated device does not compile, or its library cannot be written or loaded."""


class CannotBuildError(BuildError):
    """A tool for building the simulated device is missing; tests that need it are skipped."""
