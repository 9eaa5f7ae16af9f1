"""Every error that accel_core raises.

Each is an `AccelError` and also the built-in class a caller would expect, so that code written
against the built-in keeps working.
"""

from __future__ import annotations

__all__ = [
    "AccelError",
    "AcceleratorFallbackWarning",
    "BackendConflictError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "DeclinedError",
    "InvalidAcceleratorError",
    "InvalidBackendError",
    "RecursiveChoiceError",
    "SettingError",
    "UnsupportedError",
]


class AccelError(Exception):
    """Root of all errors raised by accel_core and its plugins."""


class BackendNotFoundError(AccelError, LookupError):
    """No installed distribution declares the backend that was asked for."""


class BackendUnavailableError(AccelError, RuntimeError):
    """The backend is installed, but it cannot be used here and now."""


class DeclinedError(BackendUnavailableError):
    """Raised while an accelerator is built: this backend is not for this machine, or leaves it to another.

    `hint` is the next step for a user; `stands_aside` tells "another backend has this device" from
    "there is no such device".
    """

    def __init__(self, reason: str, *, hint: str = "", stands_aside: bool = False) -> None:
        super().__init__(reason)
        self.hint = hint
        self.stands_aside = stands_aside


class BackendConflictError(AccelError, RuntimeError):
    """Several distributions declare the backend, and nothing says which one is meant."""


class InvalidBackendError(AccelError, ValueError):
    """A declaration is wrong; the message lists every fault at once, `hint` is the next step if known."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InvalidAcceleratorError(AccelError, TypeError):
    """What was given, or what a plugin built, is not an `Accelerator`."""


class SettingError(AccelError, ValueError):
    """An environment variable holds a value that cannot be understood."""


class RecursiveChoiceError(AccelError, RuntimeError):
    """A plugin asked for the current accelerator while that accelerator was being chosen."""


class UnsupportedError(AccelError, NotImplementedError):
    """The device cannot do this; the message names the backend, the member and the vendor's version."""


class AcceleratorFallbackWarning(UserWarning):
    """No installed or present accelerator could be used, so the CPU was chosen."""
