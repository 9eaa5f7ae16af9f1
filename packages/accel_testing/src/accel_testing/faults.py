"""Faults to inject into a fake backend: where each fault occurs, in which call, and what it does."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches

from accel_core.errors import InvalidBackendError
from accel_core.text import short_repr

__all__ = ["HOOKS", "STEPS", "Fault", "Faults", "members"]

#: The names of a plugin's hooks.
HOOKS = (
    "accel_backends",
    "accel_probe",
    "accel_create",
    "accel_explain",
    "accel_op_builders",
    "accel_checks",
)
#: The points at which a fault can occur before an accelerator exists: the import of the plugin or of the
#: vendor's package, and the construction of the accelerator.
STEPS = ("import", "vendor_import", "construction")
#: The size in bytes of each line that a fault with `floods` prints.
_LINE = 1 << 16


class _Nothing:
    """The class of the default value of `Fault.returns`, for which `None` would be a valid value."""

    def __repr__(self) -> str:
        return "nothing"

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING = _Nothing()


def members() -> list[str]:
    """Return the names of the public methods of `Accelerator`, in which faults can be injected."""
    from accel_core import Accelerator

    names = []
    for name in dir(Accelerator):
        is_public = not name.startswith("_")
        if is_public and callable(getattr(Accelerator, name)):
            names.append(name)
    return names


@dataclass(frozen=True)
class Fault:
    """A fault to inject into a `fake` backend: where it occurs, in which call, and what effect it has.

    Raises `InvalidBackendError` if `at` is unknown, if a value is invalid, or if not exactly one effect is
    given.
    """

    #: Where the fault occurs. This is `"import"` (of the plugin), `"vendor_import"`, `"construction"` (of the
    #: accelerator), a hook such as `"accel_probe"`, or a method of the accelerator such as `"synchronize"`.
    at: str
    #: Which call in a process triggers the fault, counted from 1, or `None` for every call. Calls from other
    #: methods count too: `set_device` calls `device_count`.
    call: int | None = field(default=None, kw_only=True)
    #: The exception, or exception class, to raise.
    raises: BaseException | type[BaseException] | None = field(
        default=None, kw_only=True
    )
    #: The wrong value for the hook or method to return.
    returns: object = field(default=NOTHING, kw_only=True)
    #: The exit status with which the process ends immediately, through `os._exit`.
    exits: int | None = field(default=None, kw_only=True)
    #: The number of a signal that the process sends to itself, such as `signal.SIGSEGV`.
    signal: int | None = field(default=None, kw_only=True)
    #: Whether the call never returns.
    hangs: bool = field(default=False, kw_only=True)
    #: The number of seconds by which the call is delayed.
    sleeps: float = field(default=0.0, kw_only=True)
    #: The number of bytes to write to each of the file descriptors of stdout and stderr, bypassing
    #: `sys.stdout`.
    floods: int = field(default=0, kw_only=True)
    #: A function without arguments that produces any other effect, such as `lambda: os.chdir("/")`.
    runs: Callable[[], object] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        problems = [*self._place_problems(), *self._value_problems()]
        if problems:
            raise InvalidBackendError(
                f"Fault({short_repr(self.at)}): {'; '.join(problems)}"
            )

    @property
    def _passed_effects(self) -> list[str]:
        """Return the names of the effects that were passed as arguments, such as `raises`."""
        passed_names = []
        for parameter in fields(self):
            is_default = getattr(self, parameter.name) is parameter.default
            if parameter.name in _EFFECTS and not is_default:
                passed_names.append(parameter.name)
        return passed_names

    def _place_problems(self) -> list[str]:
        """Return the problems with `at`: an unknown name, or `returns` for a point without a return value."""
        places = [*STEPS, *HOOKS, *members()]
        if self.at not in places:
            similar = get_close_matches(str(self.at), places, n=1)
            if similar:
                next_step = f"Did you mean {similar[0]!r}?"
            else:
                next_step = f"Write one of {', '.join((*STEPS, *HOOKS))}"
            return [
                f"unknown place, expected a hook or a member of Accelerator. {next_step}"
            ]
        if self.at in STEPS and "returns" in self._passed_effects:
            problem = f"{self.at} has no return value, so returns= is not allowed"
            return [f"{problem}. Give raises=..., or another place"]
        return []

    def _value_problems(self) -> list[str]:
        """Return the problems with `call` and the effect, or an empty list if both are valid."""
        if len(self._passed_effects) != 1:
            passed_names = " and ".join(self._passed_effects) or "nothing"
            effects = ", ".join(_EFFECTS)
            next_step = f"Write Fault({str(self.at)!r}, hangs=True)"
            return [f"{passed_names} given, expected one of {effects}. {next_step}"]
        problems = []
        if self.call is not None and not _is_positive_int(self.call):
            problems.append(
                f"call={self.call!r}, expected a number of at least 1, or None for every call"
            )
        effect = self._passed_effects[0]
        value = getattr(self, effect)
        is_valid, expected = _EFFECTS[effect]
        if not is_valid(value):
            problems.append(f"{effect}={value!r}, expected {expected}")
        return problems

    def _produce_effect(self) -> None:
        """Produce the fault's effect, such as raising an error. The caller handles the effect `returns`."""
        if self.raises is not None:
            raise self.raises
        if self.exits is not None:
            os._exit(self.exits)
        if self.signal is not None:
            os.kill(os.getpid(), signal.Signals(self.signal))
        if self.floods:
            _flood(self.floods)
        if self.runs is not None:
            self.runs()
        time.sleep(self.sleeps)
        while self.hangs:
            time.sleep(60)


def _is_exception(value: object) -> bool:
    """Return whether `value` is an exception or an exception class."""
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, BaseException)


def _is_count(value: object) -> bool:
    """Return whether `value` is an integer of at least 0 (such as `signal.SIGSEGV`) and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_positive_int(value: object) -> bool:
    """Return whether `value` is an integer of at least 1 and not a bool."""
    return type(value) is int and value >= 1


def _is_seconds(value: object) -> bool:
    """Return whether `value` is a number of at least 0."""
    return isinstance(value, int | float) and type(value) in (int, float) and value >= 0


_COUNT = "a whole number, 0 or more"
#: For each effect of a fault, the function that validates its value, and a description of valid values.
_EFFECTS: dict[str, tuple[Callable[[object], bool], str]] = {
    "raises": (_is_exception, "an exception: raises=RuntimeError('lost')"),
    "returns": (lambda _value: True, "any value"),
    "exits": (_is_count, _COUNT),
    "signal": (_is_count, _COUNT),
    "hangs": (lambda value: value is True, "True"),
    "sleeps": (_is_seconds, "seconds, 0 or more"),
    "floods": (_is_count, _COUNT),
    "runs": (callable, "a function without arguments: runs=os.abort"),
}


def _flood(size: int) -> None:
    """Write `size` bytes to each of the file descriptors of stdout and stderr."""
    line = b"a fault of accel_testing floods\n".ljust(_LINE, b".")
    stdout_descriptor, stderr_descriptor = 1, 2
    remaining_size = size
    while remaining_size > 0:
        chunk = line[:remaining_size]
        _write_all(stdout_descriptor, chunk)
        _write_all(stderr_descriptor, chunk)
        remaining_size -= len(chunk)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to a file descriptor, of which `os.write` may write only the beginning."""
    while data:
        written_count = os.write(descriptor, data)
        data = data[written_count:]


class Faults:
    """The faults injected into one backend in one process, with the number of calls made so far."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def trigger(self, at: str) -> Fault | None:
        """Count a call to the hook or method `at`, and trigger the injected fault that is due, if any.

        Returns the fault if the caller must return its wrong value, or `None` otherwise.
        """
        with self._lock:
            self._calls[at] += 1
            call = self._calls[at]
        for fault in self._faults:
            is_due = fault.call is None or fault.call == call
            if fault.at == at and is_due:
                fault._produce_effect()  # does nothing for a fault with a wrong value
                if fault.returns is not NOTHING:
                    return fault
        return None
