"""The errors and warnings of accel.

Each error class derives from `AccelError` and also from the built-in class that a
caller expects, so that code written for the built-in class keeps working.
"""

from accel_core.text import escape_control_chars


class _Escaped(Exception):  # noqa: N818 - a base class
    """An exception whose control characters are escaped.

    Messages quote vendors, plugins and other ranks, and are printed to a terminal.
    """

    def __init__(self, *arguments: object, **keywords: object) -> None:
        super().__init__(*map(_escape, arguments), **keywords)


def _escape(argument: object) -> object:
    if type(argument) is str:
        return escape_control_chars(argument)
    return argument


class AccelError(_Escaped):
    """Base class of the errors of accel-core, its packages and plugins. Control
    characters in the text are escaped.

    `hint` is the next step if it is known and the message does not contain it.
    """

    def __init__(self, *arguments: object, hint: str = "") -> None:
        super().__init__(*arguments)
        self.hint = escape_control_chars(hint)


class BackendNotFoundError(AccelError, LookupError, ValueError):
    """No installed distribution declares the requested backend.

    Also a `ValueError`, because DeepSpeed raises one for an unknown `DS_ACCELERATOR`.
    """


class BackendUnavailableError(AccelError, RuntimeError, ValueError):
    """The backend is installed but cannot be used now. `hint` is the next step, if
    known.

    Also a `ValueError`, because DeepSpeed raises one for a `DS_ACCELERATOR` that cannot
    be used.
    """


class DeclinedError(BackendUnavailableError):
    """Raised by a plugin while an accelerator is built, if the backend does not suit
    this machine.

    `hint` is the user's next step. `deferred` means that another backend should drive
    the device; otherwise there is no such device.
    """

    def __init__(self, reason: str, *, hint: str = "", deferred: bool = False) -> None:
        super().__init__(reason, hint=hint)
        self.deferred = deferred


class BackendConflictError(AccelError, RuntimeError):
    """Several distributions declare the backend, and no setting selects one of them."""


class InvalidBackendError(AccelError, ValueError):
    """A declaration is invalid. The message lists every fault, and `hint` is the next
    step, if known.
    """


class InvalidAcceleratorError(AccelError, TypeError):
    """An argument, or a plugin's result, is not an `Accelerator`."""


class InvalidArgumentError(AccelError, TypeError):
    """An argument has a type that the function does not accept. The message lists the
    accepted types.
    """


class InvalidDeviceError(AccelError, ValueError):
    """The device does not exist, or belongs to another accelerator. The message names
    the device and the valid range.
    """


class SettingError(AccelError, ValueError):
    """An environment variable or a settings file is invalid, or requires something that
    a policy forbids.
    """


class RecursiveChoiceError(AccelError, RuntimeError):
    """A plugin requested the current accelerator while that accelerator was being
    chosen.
    """


class LaunchError(AccelError, ValueError):
    """A job cannot be started as requested: a variable, a script, or a device for a
    rank is missing.
    """


class RankMismatchError(AccelError, RuntimeError):
    """The ranks of a job chose different accelerators, or a rank cannot start."""


class RankLostError(AccelError, RuntimeError):
    """A rank died or cannot be reached. `ranks` contains the numbers of the ranks that
    are known to be lost.
    """

    def __init__(self, message: str, *, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class CommunicationError(AccelError, RuntimeError):
    """A collective of the staged process group failed. The message names the
    collective, the rank and the next step.
    """


class ChildError(AccelError, AssertionError):
    """A test's child process failed. The message contains the output of the child.

    Also an `AssertionError`, so that the test fails.
    """


class OpInputError(AccelError, ValueError):
    """An operator got an invalid argument. The message names the operator and the
    argument.
    """


class IntegrationMissingError(AccelError, ImportError):
    """A framework that an integration needs is not installed, or is too old."""


class IntegrationError(AccelError, RuntimeError):
    """A framework cannot use the chosen accelerator, or was configured to use another
    accelerator.
    """


class HostMemoryError(AccelError, RuntimeError):
    """Pinned host memory ran out."""


class UnsupportedError(AccelError, NotImplementedError):
    """The device does not support this operation. The message names the backend, the
    member and the vendor's version.
    """


class AcceleratorFallbackWarning(_Escaped, UserWarning):
    """The CPU was chosen because no installed or present accelerator could be used.

    `merely_absent` is True if no accelerator was found on this machine and no installed
    backend is broken.
    """

    merely_absent = False


class SettingWarning(_Escaped, UserWarning):
    """A setting is probably misspelt, or requires a backend that has no device here."""
