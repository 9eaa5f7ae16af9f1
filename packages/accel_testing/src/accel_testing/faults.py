"""Faults of a fake backend: what goes wrong, where, and at which call."""

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

#: The hooks of a plugin.
HOOKS = (
    *(
        "accel_backends",
        "accel_probe",
        "accel_create",
        "accel_explain",
        "accel_op_builders",
        "accel_checks",
    ),
)
#: What else happens until there is an accelerator: the imports of the plugin and of the vendor's package, and
#: the making of the object.
STEPS = ("import", "vendor_import", "construction")
#: Bytes of each line of a flood.
_LINE = 1 << 16


class _Nothing:
    """In the place of a value, where none is given: `None` is one."""

    def __repr__(self) -> str:
        return "nothing"

    def __reduce__(self) -> str:
        return "NOTHING"


NOTHING = _Nothing()


def members() -> list[str]:
    """Return the names of the methods of `Accelerator`."""
    from accel_core import Accelerator

    return [
        name
        for name in dir(Accelerator)
        if name[0] != "_" and callable(getattr(Accelerator, name))
    ]


@dataclass(frozen=True)
class Fault:
    """One fault of a `fake` backend: where it occurs, at which call, and what happens.

    Raises `InvalidBackendError` for an unknown place, and unless exactly one kind of fault is given.
    """

    #: Where: `"import"` of the plugin, one of its hooks (`"accel_probe"`), `"vendor_import"`,
    #: `"construction"` of the accelerator, or a member of it: `"synchronize"`.
    at: str
    #: At which call in a process, counted from 1; `None`: at each. Calls that the interface itself makes
    #: count too: `set_device` asks `device_count`.
    call: int | None = field(default=None, kw_only=True)
    #: An exception, or a class of exceptions.
    raises: BaseException | type[BaseException] | None = field(
        default=None, kw_only=True
    )
    #: An answer in the place of the right one, for hooks and members: a lie.
    returns: object = field(default=NOTHING, kw_only=True)
    #: The status with which the process ends at once, as after `os._exit`.
    exits: int | None = field(default=None, kw_only=True)
    #: The number of a signal that the process sends itself: `signal.SIGSEGV`.
    signal: int | None = field(default=None, kw_only=True)
    #: It never comes back.
    hangs: bool = field(default=False, kw_only=True)
    #: Seconds that it takes longer.
    sleeps: float = field(default=0.0, kw_only=True)
    #: Bytes that it prints on stdout, and as many on stderr, below Python's own `sys.stdout`.
    floods: int = field(default=0, kw_only=True)
    #: A function without arguments, for whatever else: `lambda: os.chdir("/")`.
    runs: Callable[[], object] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        faults = [*self._wrong_place(), *self._wrong_values()]
        if faults:
            raise InvalidBackendError(
                f"Fault({short_repr(self.at)}): {'; '.join(faults)}"
            )

    @property
    def _given(self) -> list[str]:
        """The names of what it does."""
        ways = [each for each in fields(self) if each.name not in ("at", "call")]
        return [
            each.name for each in ways if getattr(self, each.name) is not each.default
        ]

    def _wrong_place(self) -> list[str]:
        places = [*STEPS, *HOOKS, *members()]
        if self.at not in places:
            close = get_close_matches(str(self.at), places, n=1)
            step = (
                f"Did you mean {close[0]!r}?"
                if close
                else f"Write one of {', '.join((*STEPS, *HOOKS))}"
            )
            return [
                f"there is no such place, expected a hook or a member of Accelerator. {step}"
            ]
        if self.at in STEPS and "returns" in self._given:
            return [
                f"{self.at} returns nothing, expected a hook or a member. Give raises=..., or another place"
            ]
        return []

    def _wrong_values(self) -> list[str]:
        if len(self._given) != 1:
            ways = ", ".join(
                each.name for each in fields(self) if each.name not in ("at", "call")
            )
            what = " and ".join(self._given) or "nothing"
            return [
                f"{what} given, expected one of {ways}. Write Fault({str(self.at)!r}, hangs=True)"
            ]
        found = []
        if self.call is not None and (type(self.call) is not int or self.call < 1):
            found.append(
                f"call={self.call!r}, expected a number from 1 on, or None for each call"
            )
        kind = self.raises if isinstance(self.raises, type) else type(self.raises)
        if self.raises is not None and not issubclass(kind, BaseException):
            found.append(
                f"raises={self.raises!r}, expected an exception: raises=RuntimeError('lost')"
            )
        for name in ("exits", "signal", "floods"):
            value = getattr(self, name)
            number = isinstance(value, int) and not isinstance(
                value, bool
            )  # signal.SIGSEGV is one
            if name in self._given and not (number and value >= 0):
                found.append(f"{name}={value!r}, expected a whole number, 0 or more")
        if self.runs is not None and not callable(self.runs):
            found.append(
                f"runs={self.runs!r}, expected a function without arguments: runs=os.abort"
            )
        if "hangs" in self._given and self.hangs is not True:
            found.append(f"hangs={self.hangs!r}, expected True")
        if "sleeps" in self._given and not (
            type(self.sleeps) in (int, float) and self.sleeps >= 0
        ):
            found.append(f"sleeps={self.sleeps!r}, expected seconds, 0 or more")
        return found

    def _happen(self) -> None:
        """Do it, but for a lie, which is the caller's to tell."""
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


def _flood(size: int) -> None:
    line = b"a fault of accel_testing floods\n".ljust(_LINE, b".")
    for start in range(0, size, _LINE):
        part = line[: size - start]
        for descriptor in (1, 2):
            left = part
            while left:
                left = left[os.write(descriptor, left) :]


class Faults:
    """The faults of one backend in one process, and the calls counted so far."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self._faults = tuple(faults)
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def meet(self, at: str) -> Fault | None:
        """Count a call at `at` and make the fault due there happen; return it if it is a wrong value."""
        with self._lock:
            self._calls[at] += 1
            number = self._calls[at]
        for fault in self._faults:
            if fault.at == at and fault.call in (None, number):
                fault._happen()
                if fault.returns is not NOTHING:
                    return fault
        return None
