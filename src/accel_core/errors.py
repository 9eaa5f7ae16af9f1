"""Define the errors and warnings of accel.

Each error class derives from `AccelError` and also from the built-in class that a
caller expects, so that code written for the built-in class keeps working.
"""

from accel_core.text import escape_control_chars


class _Escaped(Exception):  # noqa: N818 - a base class
    """An exception whose control characters are escaped.

    Messages quote vendors, plugins and other ranks, and are printed to a terminal.
    """

    def __init__(self, *arguments: object, **keywords: object) -> None:
        escaped = [_escape_if_text(argument) for argument in arguments]
        super().__init__(*escaped, **keywords)


def _escape_if_text(argument: object) -> object:
    if type(argument) is str:
        return escape_control_chars(argument)
    return argument


class AccelError(_Escaped):
    """The base class of all errors in accel-core, its packages and plugins. Control
    characters in the text are escaped.

    `hint` is the user's next step, if it is known and the message does not contain it.
    """

    def __init__(self, *arguments: object, hint: str = "") -> None:
        super().__init__(*arguments)
        self.hint = escape_control_chars(hint)


class BackendNotFoundError(AccelError, LookupError, ValueError):
    """Raised if no installed distribution declares the requested backend.

    This is also a `ValueError`, because DeepSpeed raises one for an unknown
    `DS_ACCELERATOR`.
    """


class BackendUnavailableError(AccelError, RuntimeError, ValueError):
    """Raised if a backend is installed but cannot be used now.

    `hint` is the user's next step, if known. This is also a `ValueError`, because
    DeepSpeed raises one for a `DS_ACCELERATOR` that cannot be used.
    """


class DeclinedError(BackendUnavailableError):
    """Raised while an accelerator is built, if the backend does not suit this machine.

    `hint` is the user's next step. If `deferred` is set, another backend should drive
    the device. Otherwise there is no such device.
    """

    def __init__(self, reason: str, *, hint: str = "", deferred: bool = False) -> None:
        super().__init__(reason, hint=hint)
        self.deferred = deferred


class BackendConflictError(AccelError, RuntimeError):
    """Raised if several distributions declare the requested backend, and no setting
    selects one of them.
    """


class InvalidBackendError(AccelError, ValueError):
    """Raised if a backend's declaration is invalid. The message lists every error in
    the declaration.

    `hint` is the user's next step, if known.
    """


class InvalidAcceleratorError(AccelError, TypeError):
    """Raised if an argument, or the object that a plugin returns, is not an `Accelerator`."""


class InvalidArgumentError(AccelError, TypeError):
    """Raised if an argument has a type that the function does not accept. The message
    lists the accepted types.
    """


class InvalidDeviceError(AccelError, ValueError):
    """Raised if a device does not exist or belongs to another accelerator. The message
    names the device.
    """


class SettingError(AccelError, ValueError):
    """Raised if an environment variable or a settings file is invalid, or requires
    something that a policy forbids.
    """


class RecursiveChoiceError(AccelError, RuntimeError):
    """Raised if a plugin requests the current accelerator while that accelerator is
    being chosen.
    """


class LaunchError(AccelError, ValueError):
    """Raised if a job cannot be started as requested, because a variable, a script, or
    a device for a rank is missing.
    """


class RankMismatchError(AccelError, RuntimeError):
    """Raised if the ranks of a job chose different accelerators, or if a rank cannot start."""


class RankLostError(AccelError, RuntimeError):
    """Raised if a rank of a job died or cannot be reached. `ranks` contains the numbers
    of the ranks that are known to be lost.
    """

    def __init__(self, message: str, *, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class CommunicationError(AccelError, RuntimeError):
    """Raised if a collective operation of the staged process group failed. The message
    names the collective, the rank and the next step.
    """


class ChildError(AccelError, AssertionError):
    """Raised if a test's child process failed. The message contains the child's output.

    This is also an `AssertionError`, so that the test fails.
    """


class OpInputError(AccelError, ValueError):
    """Raised if an operator received an invalid argument. The message names the
    operator and the argument.
    """


class IntegrationMissingError(AccelError, ImportError):
    """Raised if a framework that an integration needs is not installed or is too old."""


class IntegrationError(AccelError, RuntimeError):
    """Raised if a framework cannot use the chosen accelerator, or was configured to use
    another one.
    """


class HostMemoryError(AccelError, RuntimeError):
    """Raised if pinned host memory ran out."""


class UnsupportedError(AccelError, NotImplementedError):
    """Raised if the device does not support an operation. The message names the
    backend, the member and the vendor's version.
    """


class AcceleratorFallbackWarning(_Escaped, UserWarning):
    """The warning that the CPU was chosen although a plugin is installed or an
    accelerator is present, because no accelerator can be used.

    `merely_absent` is True if no accelerator was found on this machine and no installed
    backend fails to work.
    """

    merely_absent = False


class SettingWarning(_Escaped, UserWarning):
    """The warning that a setting is probably misspelled, or requires a backend that has
    no device on this machine.
    """
