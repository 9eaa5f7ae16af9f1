"""Functions for `accel simulate`: list devices, set a command's variables, build ahead."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from accel_simulated import building
from accel_simulated.asked import VARIABLE, Asked, read
from accel_simulated.declared import VARIABLE as DECLARED
from accel_simulated.declared import Declared, every, find
from accel_simulated.prebuilt import LIBRARY
from accel_simulated.vendors import DEVICES

__all__ = [
    "build", "built", "check_reports", "declared", "devices", "environment", "run_recorded", "understood",
]  # fmt: skip


def devices() -> dict[str, str]:
    """List the devices that can be simulated, each with a description in one clause."""
    return {name: vendor.description for name, vendor in DEVICES.items()}


def declared() -> dict[str, str]:
    """List installed plugins' further declarations, in the form of `devices`.

    Raises `SettingError` as `accel_core.discover` does.
    """
    return {each.backend: each.vendor.description for each in every()}


def built(name: str) -> Path | None:
    """Return the library of a device if it is built for this torch. Raises what `building.build` raises."""
    vendor = (
        DEVICES.get(name) or DEVICES["acme"]
    )  # as which anything that is declared is simulated
    return building.find(vendor.kind)


def build(
    names: Sequence[str], folder: Path | None = None
) -> Iterator[tuple[str, Path]]:
    """Build the missing libraries of these devices, or of all without names; yield each with its path.

    With a `folder` the libraries are put there, for machines without a compiler. Raises `SettingError` before
    anything is built, and what `building.build` and `building.ahead` raise.
    """
    kinds = {name: understood(name)[0].vendor.kind for name in names or DEVICES}
    for name, kind in kinds.items():
        yield (
            name,
            building.build(kind) if folder is None else building.ahead(kind, folder),
        )
    if folder is not None:  # `--report` needs no compiler there either
        from accel_simulated.detector import device_strings

        device_strings.build_into(folder)


def environment(text: str) -> dict[str, str]:
    """Return the variables for a Python process that simulates `text`, such as `"acme:2"`.

    A device that an installed plugin declares has the names of its declaration (`declared`). This builds the
    device, so that child processes find it. Raises `SettingError` if it cannot be simulated, and what
    `building.build` raises.
    """
    found, declared = understood(text)
    library = building.build(found.vendor.kind)
    named = os.environ.get(LIBRARY, "")
    # A folder stays: the command may start others that simulate another kind of device.
    kept = named if named and Path(named).is_dir() else str(library)
    return {VARIABLE: str(found), DECLARED: str(declared or ""), LIBRARY: kept}


def understood(text: str) -> tuple[Asked, Declared | None]:
    """Return the parsed `text`, with the declaration if an installed plugin has it. Raises `SettingError`."""
    name, colon, count = (part.strip() for part in text.partition(":"))
    declared = find(name.lower())
    if declared is None:
        return read(text, source="the device"), None
    vendor = declared.vendor
    return read(
        f"{vendor.name}{colon}{count}", source="the device", among={vendor.name: vendor}
    ), declared


def check_reports(files: Sequence[str]) -> None:
    """Raise `SettingError` for a report that cannot be written, or whose suffix is unknown."""
    from accel_simulated.detector import command

    command.check(files)


def run_recorded(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    files: Sequence[str],
    given: Sequence[str],
) -> int:
    """Run a program with the variables that `environment` returned, and report its code for one vendor.

    Returns the exit status. Raises what `building.build` raises. `given` is the command as the user typed it.
    """
    from accel_simulated.detector import command

    return command.run(arguments, environ, files, given)
