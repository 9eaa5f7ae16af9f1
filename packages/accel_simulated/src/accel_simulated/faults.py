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
    "count_collective_or_hang",
    "inject",
    "injected",
    "parse_faults",
    "requested_faults",
]

VARIABLE = "ACCEL_SIMULATE_FAULTS"
#: The faults that the device's C++ library implements, with their numbers in faults.h. The faults `hang` and
#: `driver` are implemented in Python.
_LIBRARY_FAULTS = {"oom": 0, "kernel": 1, "lost": 2, "slow": 3, "count": 4}
_FAULT_NAMES = (*_LIBRARY_FAULTS, "hang", "driver")
#: The regular expression for the value of each fault that takes a value.
_VALUE_PATTERNS = {"slow": r"\d+(?:\.\d+)?", "count": r"\d+"}
#: A fault with an optional value and an optional number, such as `count=1@3`.
_FAULT_PATTERN = re.compile(
    r"(?P<name>[a-z]+)(?:=(?P<value>[\d.]+))?(?:@(?P<at>[1-9]\d{0,8}))?"
)
_EXPECTED_FORM = (
    "oom@N, kernel@N, lost@N, slow=MS, count=M@N, hang@N or driver, separated by commas, "
    "such as oom@10,slow=2.5"
)
#: The number of the collective that hangs, counted from 1, or 0 if none hangs.
_hanging_collective = 0
#: The number of collectives that this process has called since `hang` was injected.
_collective_count = 0


class Fault(NamedTuple):
    """The parameters of a fault to inject: when in a run it occurs, and its value."""

    #: The number of the kernel, allocation or collective at which the fault occurs, counted from 1.
    at: int
    #: The delay in microseconds for `slow`, the number of devices for `count`, or 0 for other faults.
    value: int


def parse_faults(text: str) -> dict[str, Fault]:
    """Parse a list of faults to inject, such as `"oom@10,slow=2.5"`, and return the faults by name.

    Case and whitespace are ignored. Raises `SettingError` if a fault is invalid.
    """
    faults = {}
    for part in text.lower().split(","):
        if part.strip():
            name, fault = _parse_fault(part.strip())
            faults[name] = fault
    return faults


def _parse_fault(text: str) -> tuple[str, Fault]:
    """Parse one fault in the form `NAME`, `NAME@N`, `NAME=VALUE` or `NAME=VALUE@N`.

    Raises `SettingError` if the fault is invalid.
    """
    match = _FAULT_PATTERN.fullmatch(text)  # such as "oom@10" or "slow=2.5"
    if match is None or not _is_valid_fault(**match.groupdict(default="")):
        raise SettingError(
            f"{VARIABLE}: {text!r} is not a fault; expected {_EXPECTED_FORM}"
        )
    name = match["name"]
    value = float(match["value"] or 0)
    if name == "slow":
        value *= 1000  # milliseconds to microseconds
    at = int(match["at"] or 1)
    return name, Fault(at, int(value))


def _is_valid_fault(name: str, value: str, at: str) -> bool:
    """Return whether a fault of this name exists, and can have this value and this number after `@`.

    An empty string stands for a missing value or number.
    """
    if name not in _FAULT_NAMES:
        return False
    if name == "driver" and at:
        return False  # the driver fails from the start
    if name not in _VALUE_PATTERNS:
        return not value
    return re.fullmatch(_VALUE_PATTERNS[name], value) is not None


def requested_faults(environ: Mapping[str, str] | None = None) -> dict[str, Fault]:
    """Return the faults requested in `ACCEL_SIMULATE_FAULTS`, by name.

    The result is empty if the variable is not set. `environ` is the environment to read, by default the
    environment of this process. Raises `SettingError` if a fault is invalid.
    """
    env = os.environ if environ is None else environ
    return parse_faults(env.get(VARIABLE, ""))


def inject(faults: Mapping[str, Fault]) -> None:
    """Inject the given faults into the simulated device, starting now.

    The kernels, allocations and collectives at which faults occur are counted from this call on.
    """
    from accel_simulated.device import library

    global _hanging_collective, _collective_count
    for name, fault in faults.items():
        if name in _LIBRARY_FAULTS:
            library.sim_request(_LIBRARY_FAULTS[name], fault.at, fault.value)
    if "hang" in faults:
        _hanging_collective = faults["hang"].at
        _collective_count = 0


@contextmanager
def injected(text: str) -> Iterator[None]:
    """Inject the faults in `text` into the simulated device until the end of the `with` block.

    The number N in `@N` counts from the start of the block. At the end of the block, the faults in `text` are
    switched off, even if `ACCEL_SIMULATE_FAULTS` also requested them. Raises `SettingError` if a fault is
    invalid, or if it is `driver`, which must be requested before the process starts.
    """
    from accel_simulated import device

    global _hanging_collective
    faults = parse_faults(text)
    if "driver" in faults:
        raise SettingError(
            f"{text!r}: the driver is loaded when a process starts, so this fault cannot be injected later. "
            f"Set {VARIABLE}=driver before the process starts."
        )
    initial_device_count = device.count
    inject(faults)
    try:
        yield
    finally:
        for name in faults:
            if name in _LIBRARY_FAULTS:
                # The second argument, 0, switches the fault off. The third is for the fault `count` only.
                device.library.sim_request(
                    _LIBRARY_FAULTS[name], 0, initial_device_count
                )
        _hanging_collective = 0


def count_collective_or_hang() -> None:
    """Count a collective operation of this process, and block forever if an injected `hang` selects it."""
    global _collective_count
    if not _hanging_collective:
        return
    _collective_count += 1
    if _collective_count == _hanging_collective:
        threading.Event().wait()  # blocks forever, because nothing sets the event
