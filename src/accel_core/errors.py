"""Every error that accel_core raises, the cause behind those of others, and their texts made safe to print.

Each of ours is an `AccelError` and also the built-in class a caller would expect, so that code written
against the built-in keeps working.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

#: Packages whose lines of code are neither a user's nor a plugin's.
OURS = ("accel_core", "accel_train", "accel_tools", "accel_testing")

# --- Texts of others -----------------------------------------------------------------------------------
# A plugin's metadata or a vendor's exception may hold anything. An escape character would let them move the
# cursor, rename the window or overwrite what we print; a line end, write lines in our name.

#: Characters of a text of others that anybody reads.
_MOST = 4000
#: Characters of a wrong value that an error repeats.
_LONGEST = 200


def clean(text: str) -> str:
    """Return `text` on one line, with control characters escaped."""
    return printable(
        " ".join(text[:_MOST].split()) + ("…" if len(text) > _MOST else "")
    )


def clause(text: str) -> str:
    """Return `text` without the full stop at its end, for use within a sentence; three dots stay three."""
    return text[:-1] if text.endswith(".") and not text.endswith("..") else text


def printable(text: str) -> str:
    """Return `text` with control characters escaped; line ends and tabs stay."""
    escaped = (c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
    return text if text.isprintable() else "".join(escaped)


def shown(value: object) -> str:
    """Return a plugin's result as text for an error: shortened, and safe for objects without a `repr`."""
    with suppress(Exception):  # `10**5000` has none
        text = repr(value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return f"of {type(value).__name__}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return `" Did you mean 'npu'?"` for a name that is close to one of `names`, else an empty text."""
    from difflib import get_close_matches  # for the few who need one

    close = get_close_matches(name.lower(), list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


# --- Errors of ours ------------------------------------------------------------------------------------


class _Printable(Exception):  # noqa: N818 - no error of its own
    """Its texts are safe to print: they quote vendors, plugins and other ranks, and end in a terminal."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(
            *(printable(a) if type(a) is str else a for a in arguments), **named
        )


class AccelError(_Printable):
    """Base class of all errors of accel_core and its plugins; control characters in the text are escaped.

    `hint` is the next step, if it is known and the message does not contain it.
    """

    def __init__(self, *arguments: object, hint: str = "") -> None:
        super().__init__(*arguments)
        self.hint = printable(hint)


class BackendNotFoundError(AccelError, LookupError, ValueError):
    """No installed distribution declares the backend that was asked for.

    Also a `ValueError`, which DeepSpeed raises for a `DS_ACCELERATOR` that it does not know.
    """


class BackendUnavailableError(AccelError, RuntimeError, ValueError):
    """The backend is installed but cannot be used now; `hint` is the next step, if known.

    Also a `ValueError`, which DeepSpeed raises for a `DS_ACCELERATOR` that cannot be used.
    """


class DeclinedError(BackendUnavailableError):
    """Raise it while an accelerator is built, to say that the backend is not for this machine.

    `hint` is the user's next step. `stands_aside` means that another backend has the device; otherwise there
    is no such device.
    """

    def __init__(
        self, reason: str, *, hint: str = "", stands_aside: bool = False
    ) -> None:
        super().__init__(reason, hint=hint)
        self.stands_aside = stands_aside


class BackendConflictError(AccelError, RuntimeError):
    """Several distributions declare the backend, and no setting says which one to use."""


class InvalidBackendError(AccelError, ValueError):
    """A declaration is invalid; the message lists every fault, and `hint` is the next step, if known."""


class InvalidAcceleratorError(AccelError, TypeError):
    """An argument, or a plugin's result, that is not an `Accelerator`."""


class InvalidArgumentError(AccelError, TypeError):
    """An argument has a type that the function does not accept; the message says which ones it accepts."""


class InvalidDeviceError(AccelError, ValueError):
    """There is no such device, or it is another accelerator's; the message names it and the valid range."""


class SettingError(AccelError, ValueError):
    """An environment variable or a settings file is invalid, or asks for something that a policy forbids."""


class RecursiveChoiceError(AccelError, RuntimeError):
    """A plugin asked for the current accelerator while that accelerator was being chosen."""


class LaunchError(AccelError, ValueError):
    """A job cannot be started as requested: a variable, a script, or a device for a rank is missing."""


class RankMismatchError(AccelError, RuntimeError):
    """The ranks of a job chose different accelerators, or one of them cannot start."""


class RankLostError(AccelError, RuntimeError):
    """A rank died or cannot be reached; `ranks` are the numbers of those known to be lost."""

    def __init__(self, message: str, *, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


class CommunicationError(AccelError, RuntimeError):
    """A collective of the staged process group failed; the message names it, the rank and the next step."""


class ChildError(AccelError, AssertionError):
    """A test's child process failed; the message contains its output.

    Also an `AssertionError`, so that the test fails.
    """


class OpBuildError(AccelError, RuntimeError):
    """An operator cannot be compiled here, or its compiled library does not load."""


class OpCacheError(AccelError, OSError):
    """The folder for compiled operators cannot be written, or is not safe to load from."""


class OpInputError(AccelError, ValueError):
    """An operator got an invalid argument; the message names the operator and the argument."""


class IntegrationMissingError(AccelError, ImportError):
    """A framework that an integration needs is not installed, or is too old."""


class IntegrationError(AccelError, RuntimeError):
    """A framework cannot use accel's accelerator, or was set up so that it would use another one."""


class HostMemoryError(AccelError, RuntimeError):
    """Page-locked host memory ran out."""


class UnsupportedError(AccelError, NotImplementedError):
    """The device cannot do this; the message names the backend, the member and the vendor's version."""


class AcceleratorFallbackWarning(_Printable, UserWarning):
    """The CPU was chosen because no installed or present accelerator could be used.

    `merely_absent`: no accelerator was found on this machine, and nothing that is installed is broken.
    """

    merely_absent = False


class SettingWarning(_Printable, UserWarning):
    """A setting is probably misspelt, or asks for a backend that has no device here."""


# --- Errors of others ----------------------------------------------------------------------------------

#: What a plugin or a vendor may throw at us; `KeyboardInterrupt` passes.
CAUGHT = (Exception, SystemExit)


def root_cause(error: BaseException) -> str:
    """Return the first exception of a chain as `Type: message`; the later ones mostly say "failed
    to load".
    """
    error = root(error)
    if isinstance(error, SystemExit):
        return f"SystemExit: it tried to end the process with {error.code!r}"
    said = message(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def root_place(error: BaseException) -> str:
    """Return the file and line that raised the first exception of a chain; empty for one of accel's own
    errors.
    """
    from traceback import walk_tb

    place = ""
    for frame, line in walk_tb(root(error).__traceback__):
        file = frame.f_code.co_filename
        if not file.startswith("<"):  # Python's own import
            own = frame.f_globals.get("__name__", "").partition(".")[0] in OURS
            place = "" if own else f"{file}, line {line}"
    return place


def levels_to_caller() -> int:
    """Return the stack level of the nearest caller outside installed packages, else outside accel."""
    from pathlib import PurePath
    from traceback import walk_stack

    level = nearest = 0
    for frame, _ in walk_stack(sys._getframe(1)):
        file = frame.f_code.co_filename
        level += (
            "importlib._bootstrap" not in file
        )  # over whose frames `warnings` passes when it counts
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in OURS:
            nearest = nearest or level
            # Packages pass on what their users call.
            in_package = {"site-packages", "dist-packages"}.intersection(
                PurePath(file).parts
            )
            if not (in_package or file.startswith("<frozen ")):
                return level
    return nearest or 1


def root(error: BaseException) -> BaseException:
    """Return the first exception of a chain."""
    return [*_chain(error)][-1]


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, and each that it came of: not one that a caller handles, whose frame still runs."""
    from traceback import walk_stack

    seen: set[int] = set()
    running = [frame for frame, _ in walk_stack(None)]
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        inner = inner.__cause__ or (
            None if inner.__suppress_context__ else inner.__context__
        )
        if getattr(inner and inner.__traceback__, "tb_frame", None) in running:
            return


def message(error: BaseException) -> str:
    """Return the text of `error`, even if its `__str__` fails."""
    with suppress(
        *CAUGHT
    ):  # an exception whose own message fails must not be what the user gets to see
        return str(error)
    return "(its message cannot be read)"


def hint_for(error: BaseException, hints: Iterable[tuple[str, str]]) -> str | None:
    """Return the hint of the first pattern that matches the text of `error` or its causes; `None` if none
    does.

    For `Backend.hints`, and for a plugin's `accel_explain`. `hints` are pairs: a regular expression,
    matched without regard to case, and the user's next step. An invalid pattern is skipped.
    """
    text = "\n".join(map(message, _chain(error)))
    for pattern, hint in hints:
        # The vendor's error matters more than a pattern that is none.
        with suppress(re.error, OverflowError, RecursionError):
            if re.search(pattern, text, re.IGNORECASE):
                return hint
    return None
