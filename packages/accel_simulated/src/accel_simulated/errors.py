"""Errors of building the simulated device, and of loading a library of it."""

from __future__ import annotations

from accel_core.errors import AccelError

__all__ = ["BuildError", "CannotBuildError"]


class BuildError(AccelError, RuntimeError):
    """The simulated device does not compile, cannot be kept, or its library does not load."""


class CannotBuildError(BuildError):
    """A tool for building the simulated device is missing; tests are skipped with this reason."""
