"""Faults of a fake backend: the kind of fault, the place, and the number of the call."""

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
#: Other places for a fault before an accelerator exists: the imports of the plugin and of the vendor's
#: package, and the construction of the accelerator.
STEPS = ("import", "vendor_import", "construction")
#: The size in bytes of each line that a fault with `floods` prints.
_LINE = 1 << 16


class _Nothing:
    """The default of `Fault.returns`, which means that no value was given; `None` is a valid value."""

    def __repr__(self) -> str:
        return "nothing"

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING = _Nothing()


def members() -> list[str]:
    """Return the names of the public methods of `Accelerator`."""
    from accel_core import Accelerator

    names = []
    for name in dir(Accelerator):
        is_public = not name.startswith("_")
        if is_public and callable(getattr(Accelerator, name)):
            names.append(name)
    return names


@dataclass(frozen=True)
class Fault:
    """One fault of a `fake` backend: the place, the number of the call, and the effect.

    Raises `InvalidBackendError` for an unknown place, and if not exactly one effect is given.
    """

    #: The place: `"import"` of the plugin, a hook such as `"accel_probe"`, `"vendor_import"`,
    #: `"construction"` of the accelerator, or a member of the accelerator such as `"synchronize"`.
    at: str
    #: The number of the call in a process at which the fault occurs, from 1; `None` means each call. Calls by
    #: other members count too: `set_device` calls `device_count`.
    call: int | None = field(default=None, kw_only=True)
    #: The exception, or class of exceptions, that is raised.
    raises: BaseException | type[BaseException] | None = field(
        default=None, kw_only=True
    )
    #: The wrong value that a hook or member returns.
    returns: object = field(default=NOTHING, kw_only=True)
    #: The status with which the process ends immediately, by `os._exit`.
    exits: int | None = field(default=None, kw_only=True)
    #: The number of the signal that the process sends itself, such as `signal.SIGSEGV`.
    signal: int | None = field(default=None, kw_only=True)
    #: Whether the call never returns.
    hangs: bool = field(default=False, kw_only=True)
    #: The seconds by which the call is delayed.
    sleeps: float = field(default=0.0, kw_only=True)
    #: The number of bytes written to the file descriptors of stdout and of stderr, without `sys.stdout`.
    floods: int = field(default=0, kw_only=True)
    #: A function without arguments that has any other effect, such as `lambda: os.chdir("/")`.
    runs: Callable[[], object] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        problems = [*self._place_problems(), *self._value_problems()]
        if problems:
            raise InvalidBackendError(
                f"Fault({short_repr(self.at)}): {'; '.join(problems)}"
            )

    @property
    def _given_effects(self) -> list[str]:
        """Return the names of the effects that have a value, such as `raises`."""
        given = []
        for parameter in fields(self):
            is_effect = parameter.name not in ("at", "call")
            has_value = getattr(self, parameter.name) is not parameter.default
            if is_effect and has_value:
                given.append(parameter.name)
        return given

    def _place_problems(self) -> list[str]:
        """Return the problems with `at`: an unknown place, or a place that cannot return a value."""
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
        if self.at in STEPS and "returns" in self._given_effects:
            problem = f"{self.at} has no return value, so returns= is not allowed"
            return [f"{problem}. Give raises=..., or another place"]
        return []

    def _value_problems(self) -> list[str]:
        """Return the problems with `call` and the effect; empty if both are valid."""
        if len(self._given_effects) != 1:
            effects = [
                parameter.name
                for parameter in fields(self)
                if parameter.name not in ("at", "call")
            ]
            given = " and ".join(self._given_effects) or "nothing"
            step = f"Write Fault({str(self.at)!r}, hangs=True)"
            return [f"{given} given, expected one of {', '.join(effects)}. {step}"]
        problems = []
        if self.call is not None and (type(self.call) is not int or self.call < 1):
            problems.append(
                f"call={self.call!r}, expected a number from 1 on, or None for each call"
            )
        effect = self._given_effects[0]
        value = getattr(self, effect)
        is_valid, expected = _EFFECTS[effect]
        if not is_valid(value):
            problems.append(f"{effect}={value!r}, expected {expected}")
        return problems

    def _produce_effect(self) -> None:
        """Produce the fault's effect, such as raising an error; the caller handles the effect `returns`."""
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
    """Return whether `value` is an exception, or a class of exceptions."""
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, BaseException)


def _is_count(value: object) -> bool:
    """Return whether `value` is an integer of at least 0, such as `signal.SIGSEGV`, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_seconds(value: object) -> bool:
    """Return whether `value` is a number of at least 0."""
    return isinstance(value, int | float) and type(value) in (int, float) and value >= 0


_COUNT = "a whole number, 0 or more"
#: For each effect of a fault: the function that checks a value, and the expected value in words.
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
    """Write `size` bytes each to the file descriptors of stdout and stderr."""
    line = b"a fault of accel_testing floods\n".ljust(_LINE, b".")
    for start in range(0, size, _LINE):
        chunk = line[: size - start]
        for descriptor in (1, 2):
            unwritten = chunk
            while unwritten:
                unwritten = unwritten[os.write(descriptor, unwritten) :]


class Faults:
    """The faults of one backend in one process, and the number of calls so far."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def trigger(self, at: str) -> Fault | None:
        """Count a call at the place `at`, and produce the effect of the fault that is due.

        Returns the fault if it has a wrong value that the caller must return, otherwise `None`.
        """
        with self._lock:
            self._calls[at] += 1
            call = self._calls[at]
        for fault in self._faults:
            if fault.at == at and fault.call in (None, call):
                fault._produce_effect()
                if fault.returns is not NOTHING:
                    return fault
        return None
