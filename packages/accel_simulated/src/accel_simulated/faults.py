"""Faults of a simulated device on request: by `ACCEL_SIMULATE_FAULTS`, or inside a `with`
block.

    ACCEL_SIMULATE_FAULTS=oom@10,slow=2.5 accel simulate acme -- python train.py

    with accel_simulated.faults.injected("kernel@3"): ...

| fault | |
|---|---|
| `oom@N` | the N-th allocation of memory raises `torch.OutOfMemoryError` |
| `kernel@N` | the N-th kernel fails; it shows when its stream is next waited for, as on a device |
| `lost@N` | from the N-th kernel on the device is lost: whatever uses it raises `RuntimeError` |
| `slow=MS` | each kernel and copy takes so many milliseconds longer, of its stream |
| `count=M@N` | from the N-th kernel on there are M devices |
| `hang@N` | the N-th collective of this process never ends |
| `driver` | the driver is too old: no device, and starting the runtime says why (by the variable alone) |

`@N` counts from 1, from the start or from the entry of the block; without it the first one is meant. Several
are separated by commas.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from accel_core import SettingError

__all__ = ["VARIABLE", "Fault", "asked", "begin", "injected", "meet_collective", "read"]

VARIABLE = "ACCEL_SIMULATE_FAULTS"
#: Those of the device itself, in the order of faults.h.
_NUMBERS = {
    name: number
    for number, name in enumerate(("oom", "kernel", "lost", "slow", "count"))
}
_NAMES = (*_NUMBERS, "hang", "driver")
#: Whether a fault takes a value, with what a good one looks like.
_VALUES = {"slow": r"\d+(?:\.\d+)?", "count": r"\d+"}
_FORM = "oom@N, kernel@N, lost@N, slow=MS, count=M@N, hang@N, driver, by commas"
_hang: tuple[int, int] = (0, 0)  # at which collective, and how many there were


class Fault(NamedTuple):
    """One fault: when it occurs, and its value in the unit of faults.h (microseconds, devices)."""

    at: int
    value: int


def read(text: str) -> dict[str, Fault]:
    """Return the faults in `text` by name. Raises `SettingError` that names the invalid one."""
    found = {}
    for part in filter(None, (part.strip().lower() for part in text.split(","))):
        match = re.fullmatch(r"([a-z]+)(?:=([\d.]+))?(?:@([1-9]\d{0,8}))?", part)
        name, value, at = match.groups() if match else (part, None, None)
        expected = _VALUES.get(name)
        bad_value = (
            value is not None
            if expected is None
            else not re.fullmatch(expected, value or "")
        )
        if name not in _NAMES or bad_value or (name == "driver" and at):
            raise SettingError(
                f"{VARIABLE}: {part!r} is no fault; expected {_FORM}, such as oom@10,slow=2.5"
            )
        number = float(value or 0) * (1000 if name == "slow" else 1)
        found[name] = Fault(int(at or 1), int(number))
    return found


def asked(environ: Mapping[str, str] | None = None) -> dict[str, Fault]:
    """Return the parsed `ACCEL_SIMULATE_FAULTS`. Raises `SettingError`."""
    return read((os.environ if environ is None else environ).get(VARIABLE, ""))


def begin(faults: Mapping[str, Fault]) -> None:
    """Make these faults occur from now on."""
    from accel_simulated.device import library

    global _hang
    for name, fault in faults.items():
        if name in _NUMBERS:
            library.sim_request(_NUMBERS[name], fault.at, fault.value)
    if "hang" in faults:
        _hang = (faults["hang"].at, 0)


@contextmanager
def injected(text: str) -> Iterator[None]:
    """Inject the faults in `text` within the block; `@N` counts from the block's start.

    At the end these faults are off, even those that `ACCEL_SIMULATE_FAULTS` had requested. Raises
    `SettingError` for an unknown fault, and for `driver`, which must be set before the process starts.
    """
    from accel_simulated import device

    global _hang
    faults = read(text)
    if "driver" in faults:
        raise SettingError(
            f"{text!r}: the driver was found when this process started; set {VARIABLE}=driver"
        )
    devices = device.count
    begin(faults)
    try:
        yield
    finally:
        for name in faults:
            if name in _NUMBERS:
                device.library.sim_request(_NUMBERS[name], 0, devices)
        _hang = (0, 0)


def meet_collective() -> None:
    """Count one collective of this process; never return from the one that is to hang."""
    global _hang
    if not _hang[0]:
        return
    _hang = (_hang[0], _hang[1] + 1)
    if _hang[0] == _hang[1]:
        threading.Event().wait()
