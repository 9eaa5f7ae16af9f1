"""Functions for `accel simulate`: list devices, prepare a command's environment, and prebuild libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accel_simulated import building
from accel_simulated.declared import VARIABLE as DECLARED
from accel_simulated.declared import DeclaredDevice, find, find_all
from accel_simulated.prebuilt import LIBRARY
from accel_simulated.request import VARIABLE, Request, parse_request
from accel_simulated.vendors import DEVICES

__all__ = [
    "ParsedDevice", "build", "check_report_files", "declared_devices", "devices", "environment",
    "find_library", "parse_device", "run_and_report",
]  # fmt: skip


def devices() -> dict[str, str]:
    """Return the names and short descriptions of the devices that accel-simulated itself can simulate."""
    return {name: vendor.description for name, vendor in DEVICES.items()}


def declared_devices() -> dict[str, str]:
    """Return the names and short descriptions of the devices that can be simulated as plugins declare them.

    Devices that accel-simulated itself can simulate are not included. Raises `SettingError` in the same cases
    as `accel_core.discover`.
    """
    return {device.backend: device.vendor.description for device in find_all()}


def find_library(name: str) -> Path | None:
    """Return the path of the library that simulates a device, or `None` if it is not built for this torch.

    Raises the same errors as `building.find`.
    """
    # A declared device is simulated as acme.
    vendor = DEVICES.get(name, DEVICES["acme"])
    return building.find(vendor.kind)


def build(
    names: Sequence[str], folder: Path | None = None
) -> Iterator[tuple[str, Path]]:
    """Build the missing libraries of the named devices, and yield each device's name and library path.

    If `names` is empty, all devices are built. The libraries are written into `folder`, for use on machines
    without a compiler, or into the cache if `folder` is `None`.

    Raises `SettingError` before the first build if a name is invalid. Also raises the same errors as
    `building.build` and `building.build_into`.
    """
    kind_by_name = {}
    for name in names or DEVICES:  # without names, all devices
        kind_by_name[name] = parse_device(name).request.vendor.kind
    for name, kind in kind_by_name.items():
        if folder is None:
            yield name, building.build(kind)
        else:
            yield name, building.build_into(folder, kind)
    if folder is not None:
        # `accel simulate --report` needs this library on machines without a compiler, too.
        from accel_simulated.detector import device_strings

        device_strings.build_into(folder)


def environment(text: str) -> dict[str, str]:
    """Return the environment variables that make a Python process simulate a device such as `"acme:2"`.

    The device is built first, so that the process finds its library. Raises `SettingError` if the device
    cannot be simulated. Also raises the same errors as `building.build`.
    """
    device = parse_device(text)
    library = str(building.build(device.request.vendor.kind))
    user_folder = os.environ.get(LIBRARY, "")
    # A folder stays in the variable, because the command may simulate devices of other types.
    if user_folder and Path(user_folder).is_dir():
        library = user_folder
    declaration = ""
    if device.declared is not None:
        declaration = device.declared.to_json()
    return {VARIABLE: str(device.request), DECLARED: declaration, LIBRARY: library}


class ParsedDevice(NamedTuple):
    """A device to simulate, parsed from text such as `"acme:2"`."""

    request: Request
    #: The declaration in an installed plugin, or `None` if accel-simulated has its own simulation.
    declared: DeclaredDevice | None


def parse_device(text: str) -> ParsedDevice:
    """Parse the name of a device to simulate, with an optional count, such as `"acme"` or `"acme:2"`.

    The device may be one that an installed plugin declares. Raises `SettingError` if the name or count is
    invalid.
    """
    name, colon, count = (part.strip() for part in text.partition(":"))
    declared_device = find(name.lower())
    if declared_device is None:
        return ParsedDevice(parse_request(text, source="the device"), declared=None)
    vendor = declared_device.vendor
    request = parse_request(
        f"{vendor.name}{colon}{count}",
        source="the device",
        vendors={vendor.name: vendor},
    )
    return ParsedDevice(request, declared_device)


def check_report_files(files: Sequence[str]) -> None:
    """Raise `SettingError` if a report file cannot be written or has an unknown suffix."""
    from accel_simulated.detector import command

    command.check_report_files(files)


def run_and_report(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    files: Sequence[str],
    command_line: Sequence[str],
) -> int:
    """Run a program, write reports on its vendor-specific code, and return its exit status.

    `environ` contains the variables that `environment` returned. `files` contains the paths of the reports,
    and `command_line` is the command as the user typed it. Raises the same errors as `building.build`.
    """
    from accel_simulated.detector import command

    return command.run_and_report(arguments, environ, files, command_line)
