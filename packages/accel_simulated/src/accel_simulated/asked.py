"""Read `ACCEL_SIMULATE`: which device to simulate, and how many."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from accel_core import SettingError
from accel_simulated import declared
from accel_simulated.vendors import DEVICES, Vendor

__all__ = ["MOST", "VARIABLE", "Asked", "asked", "read"]

VARIABLE = "ACCEL_SIMULATE"
#: torch numbers devices in eight bits, and takes as many of most kinds.
MOST = 64
_FORM = f"NAME or NAME:COUNT, such as acme:2; the names are {', '.join(DEVICES)}"


class Asked(NamedTuple):
    """A process's request to simulate."""

    vendor: Vendor
    devices: int

    def __str__(self) -> str:
        return f"{self.vendor.name}:{self.devices}"


def asked(environ: Mapping[str, str] | None = None) -> Asked | None:
    """Return the parsed `ACCEL_SIMULATE`; `None` if it is unset or empty. Raises `SettingError`."""
    given = os.environ if environ is None else environ
    text = given.get(VARIABLE, "").strip()
    return read(text, among=declared.known(given)) if text else None


def read(
    text: str, *, source: str = VARIABLE, among: Mapping[str, Vendor] = DEVICES
) -> Asked:
    """Parse `"acme"` or `"acme:2"`; without a count, use the vendor's `devices`, usually 2.

    Case and blanks are ignored. Raises `SettingError`, which names `source`, for a name that is not in
    `among`, and for a count that is not a number from 1 to `MOST` (to 1 for mps).
    """
    given = f"{source}={text!r}" if source == VARIABLE else f"{source} {text!r}"
    name, colon, number = (part.strip() for part in text.partition(":"))
    vendor = among.get(name.lower())
    if vendor is None:
        close = get_close_matches(name.lower(), among, n=1)
        meant = f" Did you mean {close[0]}{colon}{number}?" if close else ""
        raise SettingError(
            f"{given}: {name!r} is not simulated; expected {_FORM}, and devices that "
            f"installed plugins declare with private_use1: accel simulate NAME -- COMMAND.{meant}"
        )
    if not colon:
        return Asked(vendor, vendor.devices)
    most = 1 if vendor.devices == 1 else MOST
    count = (
        int(number)
        if number.isascii() and number.isdecimal() and len(number) < 9
        else 0
    )
    if not 1 <= count <= most:
        expected = (
            f"from 1 to {most}" if most > 1 else "1, as torch knows one such device"
        )
        raise SettingError(
            f"{given}: {number!r} is no count of devices; expected {expected}. "
            f"Write {vendor.name}:{vendor.devices}."
        )
    return Asked(vendor, count)
