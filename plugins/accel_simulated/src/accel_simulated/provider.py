"""What `accel simulate` asks of this package: the devices, the variables of a command, and building ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from accel_simulated import building
from accel_simulated.asked import VARIABLE, read
from accel_simulated.vendors import DEVICES

__all__ = ["build", "built", "check_reports", "devices", "environment", "run_recorded"]


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

    Builds the device, so that the processes below find it. Raises `SettingError` for what cannot be
    simulated, and as `building.build` does.
    """
    found = read(text, source="the device")
    return {VARIABLE: str(found), building.LIBRARY: str(building.build(found.vendor.kind))}


def check_reports(files: Sequence[str]) -> None:
    """Raise `SettingError` for a report that cannot be written, or whose ending names no format."""
    from accel_simulated.detector import command

    command.check(files)


def run_recorded(
    arguments: Sequence[str], environ: Mapping[str, str], files: Sequence[str], given: Sequence[str]
) -> int:
    """Run a program with the variables that `environment` gave, and write down what in it names one vendor.

    Gives the exit status; raises as `building.build` does. `given` is the command as a person wrote it.
    """
    from accel_simulated.detector import command

    return command.run(arguments, environ, files, given)
