"""Parse `ACCEL_SIMULATE`, which names the device to simulate and the number of devices."""

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
#: The maximum number of devices. torch stores a device index in eight bits.
MAX_DEVICES = 64
_EXPECTED_FORM = (
    f"NAME or NAME:COUNT, such as acme:2; the names are {', '.join(DEVICES)}"
)


class Request(NamedTuple):
    """A parsed value of `ACCEL_SIMULATE`, with the device to simulate and the number of devices."""

    vendor: Vendor
    #: The number of devices to simulate.
    devices: int

    def __str__(self) -> str:
        return f"{self.vendor.name}:{self.devices}"


def current_request(environ: Mapping[str, str] | None = None) -> Request | None:
    """Return the parsed value of `ACCEL_SIMULATE`, or `None` if the variable is unset or empty.

    `environ` is the environment to read, by default the environment of this process. Raises `SettingError` if
    the value is invalid.
    """
    env = os.environ if environ is None else environ
    text = env.get(VARIABLE, "").strip()
    if not text:
        return None
    return parse_request(text, vendors=declared.known_vendors(env))


def parse_request(
    text: str, *, source: str = VARIABLE, vendors: Mapping[str, Vendor] = DEVICES
) -> Request:
    """Parse a request to simulate devices, such as `"acme"` or `"acme:2"`.

    Without a count, the vendor's default number of devices is used, which is usually 2. Case and whitespace
    are ignored. `vendors` contains the valid names. `source` is used in error messages to say where `text`
    comes from.

    Raises `SettingError` if the name is unknown, or if the count is not a number from 1 to `MAX_DEVICES`. For
    mps, the only valid count is 1.
    """
    shown_text = f"{source} {text!r}"
    if source == VARIABLE:
        shown_text = f"{source}={text!r}"
    name, colon, number = (part.strip() for part in text.partition(":"))
    vendor = vendors.get(name.lower())
    if vendor is None:
        suggestion = ""
        close_names = get_close_matches(name.lower(), vendors, n=1)
        if close_names:
            suggestion = f" Did you mean {close_names[0]}{colon}{number}?"
        raise SettingError(
            f"{shown_text}: {name!r} cannot be simulated; expected {_EXPECTED_FORM}. A device that an "
            "installed plugin declares with private_use1 can be simulated too: accel simulate NAME -- "
            f"COMMAND.{suggestion}"
        )
    if not colon:
        return Request(vendor, vendor.devices)
    count = _parse_count(number)
    if vendor.devices == 1:
        max_devices = 1
        expected = "1, because torch supports only one device of this type"
    else:
        max_devices = MAX_DEVICES
        expected = f"a number from 1 to {max_devices}"
    if not 1 <= count <= max_devices:
        raise SettingError(
            f"{shown_text}: {number!r} is not a valid number of devices; expected {expected}. "
            f"Write {vendor.name}:{vendor.devices}."
        )
    return Request(vendor, count)


def _parse_count(text: str) -> int:
    """Return the decimal number in `text`, or 0, which is never a valid count, for any other text."""
    # int() raises an error for thousands of digits, so the length is limited.
    if text.isascii() and text.isdecimal() and len(text) <= 8:
        return int(text)
    return 0  # never a valid count
