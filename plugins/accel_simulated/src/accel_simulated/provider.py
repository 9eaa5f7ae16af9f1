"""What `accel simulate` asks of this package: the devices, the variables of a command, and building ahead."""

from __future__ import annotations

from pathlib import Path

from accel_simulated import building
from accel_simulated.asked import VARIABLE, read
from accel_simulated.declared import VARIABLE as DECLARED
from accel_simulated.declared import find
from accel_simulated.vendors import DEVICES

__all__ = ["build", "built", "devices", "environment"]


def devices() -> dict[str, str]:
    """What can be simulated: each name with what it is, in one clause."""
    return {name: vendor.description for name, vendor in DEVICES.items()}


def built(name: str) -> Path | None:
    """The library of a device where it is built for this torch; raises as `building.build` does."""
    return building.find(read(name, source="the device").vendor.kind)


def build(name: str) -> Path:
    """Build a device's library unless it is there; raises as `building.build` does, and `SettingError`."""
    return building.build(read(name, source="the device").vendor.kind)


def environment(text: str) -> dict[str, str]:
    """The variables with which Python starts in a process that simulates `text`, such as `"acme:2"`.

    A device that an installed plugin declares has the names of its declaration (`declared`). Builds the
    device, so that the processes below find it. Raises `SettingError` for what cannot be simulated, and as
    `building.build` does.
    """
    name, colon, count = (part.strip() for part in text.partition(":"))
    declared = find(name.lower())
    if declared is None:
        found = read(text, source="the device")
    else:
        vendor = declared.vendor
        found = read(f"{vendor.name}{colon}{count}", source="the device", among={vendor.name: vendor})
    library = str(building.build(found.vendor.kind))
    return {VARIABLE: str(found), DECLARED: str(declared or ""), building.LIBRARY: library}
