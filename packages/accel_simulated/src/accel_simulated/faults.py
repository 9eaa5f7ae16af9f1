"""Inject faults into a simulated device, with `ACCEL_SIMULATE_FAULTS` or inside a `with` block.

    ACCEL_SIMULATE_FAULTS=oom@10,slow=2.5 accel simulate acme -- python train.py

    with accel_simulated.faults.injected("kernel@3"): ...

| fault | effect |
|---|---|
| `oom@N` | the N-th allocation of memory raises `torch.OutOfMemoryError` |
| `kernel@N` | the N-th kernel fails; as on a real device, the next wait for its stream raises the error |
| `lost@N` | from the N-th kernel on the device is lost: each use of it raises `RuntimeError` |
| `slow=MS` | each kernel and copy takes MS milliseconds longer on its stream |
| `count=M@N` | from the N-th kernel on there are M devices |
| `hang@N` | the N-th collective in this process never returns |
| `driver` | the driver is too old: no device is available, and starting the runtime raises an error |

`N` counts from 1 at the start of the process or of the block; without `@N`, N is 1. Several faults are
separated by commas. `driver` can be set only in the variable.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from accel_core import SettingError

__all__ = [
    "VARIABLE",
    "Fault",
    "count_collective",
    "inject",
    "injected",
    "parse_faults",
    "requested_faults",
]

VARIABLE = "ACCEL_SIMULATE_FAULTS"
#: The number of each fault in faults.h. The faults `hang` and `driver` are implemented in Python.
_NUMBERS = {"oom": 0, "kernel": 1, "lost": 2, "slow": 3, "count": 4}
_NAMES = (*_NUMBERS, "hang", "driver")
#: The form of the value, for the faults that take a value.
_VALUE_FORMS = {"slow": r"\d+(?:\.\d+)?", "count": r"\d+"}
_EXPECTED = (
    "oom@N, kernel@N, lost@N, slow=MS, count=M@N, hang@N or driver, separated by commas, "
    "such as oom@10,slow=2.5"
)
#: The number of the collective that hangs, from 1 (0 for none), and the number of collectives so far.
_hanging_collective, _collectives = 0, 0


class Fault(NamedTuple):
    """The time at which one fault occurs, and the fault's value."""

    #: The number of the kernel, allocation or collective at which the fault occurs, from 1.
    at: int
    #: Microseconds for `slow`, the number of devices for `count`, 0 for other faults.
    value: int


def parse_faults(text: str) -> dict[str, Fault]:
    """Parse faults, such as `"oom@10,slow=2.5"`, into a dictionary by name.

    Case and blanks are ignored. Raises `SettingError` for an invalid fault.
    """
    faults = {}
    for part in text.lower().split(","):
        if part.strip():
            name, fault = _parse_fault(part.strip())
            faults[name] = fault
    return faults


def _parse_fault(text: str) -> tuple[str, Fault]:
    """Parse one fault: `NAME`, `NAME@N`, `NAME=VALUE` or `NAME=VALUE@N`. Raises `SettingError`."""
    match = re.fullmatch(r"([a-z]+)(?:=([\d.]+))?(?:@([1-9]\d{0,8}))?", text)
    name, value, at = match.groups(default="") if match else (text, "", "")
    has_valid_value = re.fullmatch(_VALUE_FORMS.get(name, ""), value) is not None
    if name not in _NAMES or not has_valid_value or (name == "driver" and at):
        raise SettingError(f"{VARIABLE}: {text!r} is not a fault; expected {_EXPECTED}")
    number = float(value or 0)
    if name == "slow":
        number *= 1000  # milliseconds to microseconds
    return name, Fault(int(at or 1), int(number))


def requested_faults(environ: Mapping[str, str] | None = None) -> dict[str, Fault]:
    """Return the parsed `ACCEL_SIMULATE_FAULTS`; empty if it is not set. Raises `SettingError`."""
    env = os.environ if environ is None else environ
    return parse_faults(env.get(VARIABLE, ""))


def inject(faults: Mapping[str, Fault]) -> None:
    """Inject these faults; kernels, allocations and collectives are counted from this call."""
    from accel_simulated.device import library

    global _hanging_collective, _collectives
    for name, fault in faults.items():
        if name in _NUMBERS:
            library.sim_request(_NUMBERS[name], fault.at, fault.value)
    if "hang" in faults:
        _hanging_collective, _collectives = faults["hang"].at, 0


@contextmanager
def injected(text: str) -> Iterator[None]:
    """Inject the faults in `text` within the block; `@N` counts from the block's start.

    At the end of the block these faults are off, even if `ACCEL_SIMULATE_FAULTS` had requested some of them.
    Raises `SettingError` for an invalid fault, and for `driver`, which must be set before the process starts.
    """
    from accel_simulated import device

    global _hanging_collective
    faults = parse_faults(text)
    if "driver" in faults:
        raise SettingError(
            f"{text!r}: the driver is loaded when a process starts, so this fault cannot be injected later. "
            f"Set {VARIABLE}=driver before the start."
        )
    device_count = device.count
    inject(faults)
    try:
        yield
    finally:
        for name in faults:
            if name in _NUMBERS:
                # 0 switches the fault off; `count` also restores the number of devices.
                device.library.sim_request(_NUMBERS[name], 0, device_count)
        _hanging_collective = 0


def count_collective() -> None:
    """Count one collective of this process; never return if the fault `hang` selects this collective."""
    global _collectives
    if not _hanging_collective:
        return
    _collectives += 1
    if _collectives == _hanging_collective:
        threading.Event().wait()
