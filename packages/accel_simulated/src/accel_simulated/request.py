"""Parse `ACCEL_SIMULATE`: the device to simulate, and the number of devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from accel_core import SettingError
from accel_simulated import declared
from accel_simulated.vendors import DEVICES, Vendor

__all__ = ["MAX_DEVICES", "VARIABLE", "Request", "current_request", "parse_request"]

VARIABLE = "ACCEL_SIMULATE"
#: The maximum number of devices: torch stores a device index in eight bits.
MAX_DEVICES = 64
_FORM = f"NAME or NAME:COUNT, such as acme:2; the names are {', '.join(DEVICES)}"


class Request(NamedTuple):
    """The simulation that a process requests."""

    vendor: Vendor
    #: The number of devices to simulate.
    devices: int

    def __str__(self) -> str:
        return f"{self.vendor.name}:{self.devices}"


def current_request(environ: Mapping[str, str] | None = None) -> Request | None:
    """Return the parsed `ACCEL_SIMULATE`; `None` if it is unset or empty. Raises `SettingError`."""
    env = os.environ if environ is None else environ
    text = env.get(VARIABLE, "").strip()
    if not text:
        return None
    return parse_request(text, vendors=declared.known_vendors(env))


def parse_request(
    text: str, *, source: str = VARIABLE, vendors: Mapping[str, Vendor] = DEVICES
) -> Request:
    """Parse a request such as `"acme"` or `"acme:2"`.

    Without a count, the number of devices is the vendor's `devices`, usually 2. Case and blanks are ignored.
    `source` names the origin of `text` in messages. `vendors` contains the valid names. Raises `SettingError`
    for an unknown name, and for a count that is not a number from 1 to `MAX_DEVICES` (for mps: not 1).
    """
    shown = f"{source}={text!r}" if source == VARIABLE else f"{source} {text!r}"
    name, colon, number = (part.strip() for part in text.partition(":"))
    vendor = vendors.get(name.lower())
    if vendor is None:
        close = get_close_matches(name.lower(), vendors, n=1)
        suggestion = f" Did you mean {close[0]}{colon}{number}?" if close else ""
        raise SettingError(
            f"{shown}: {name!r} is not simulated; expected {_FORM}, or a device that an installed plugin "
            f"declares with private_use1 (accel simulate NAME -- COMMAND).{suggestion}"
        )
    if not colon:
        return Request(vendor, vendor.devices)
    count = _parse_count(number)
    max_devices = 1 if vendor.devices == 1 else MAX_DEVICES
    if not 1 <= count <= max_devices:
        expected = f"a number from 1 to {max_devices}"
        if max_devices == 1:
            expected = "1, because torch supports one such device"
        raise SettingError(
            f"{shown}: {number!r} is not a valid number of devices; expected {expected}. "
            f"Write {vendor.name}:{vendor.devices}."
        )
    return Request(vendor, count)


def _parse_count(text: str) -> int:
    """Parse a decimal number of at most 8 ASCII digits; return 0 for any other text."""
    if text.isascii() and text.isdecimal() and len(text) <= 8:
        return int(text)
    return 0
