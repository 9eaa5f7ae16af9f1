"""The commands of `accel` that examine a machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel_core import Verdict

__all__ = ["SUMMARIES", "environment", "remarks"]

#: Each command and its line in `accel --help`, which is the first sentence of its own help.
SUMMARIES = {
    "bench": "Measure how fast the chosen accelerator, or NAME, is.",
    "doctor": "Report what is wrong here, or with each NAME, and the next step.",
    "declarations": "Print what each backend, or NAME, declares, as JSON.",
    "info": "Show what the chosen accelerator, or NAME, is and can do.",
    "python": "Start Python in the environment of a folder that fits this machine.",
    "setup": "Print the command that installs the right torch here.",
}


def environment() -> str:
    """Return which environment of a folder runs, and why, for `accel why`; empty outside a folder."""
    from accel_tools.setup import folder  # here, as `accel --help` has no need of it

    return folder.own_environment()


def remarks(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield remarks for `accel list` and `accel why` on packages with a device that is not registered."""
    from accel_tools.doctor import (
        unannounced,
    )  # here, as `accel --help` has no need of it

    modules = [
        *os.environ.get("ACCEL_IMPORT", "").split(","),
        *(m for v in verdicts for m in v.vendor_import),
    ]
    for package in unannounced.found(
        {module.strip().partition(".")[0] for module in modules}
    ):
        more = f", but neither torch nor a plugin imports it. To try it: accel --import {package.module} list"
        if package.device_type:
            more = f". Next step: write its plugin: accel new {package.device_type} --no-private-use1"
        yield package.told + more
