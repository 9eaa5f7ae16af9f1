"""The commands of `accel` that examine a machine."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accel_core import Verdict

__all__ = ["SUMMARIES", "environment", "remarks"]

#: The line for each command in `accel --help`. It is the first sentence of the command's help.
SUMMARIES = {
    "bench": "Measure how fast the chosen accelerator, or NAME, is.",
    "doctor": "Report problems on this machine, or with NAME, and next steps.",
    "declarations": "Print the declarations of all backends, or of NAME, as JSON.",
    "info": "Show what the chosen accelerator, or NAME, is and can do.",
    "python": "Start the Python in FOLDER that fits this machine.",
    "setup": "Print the command that installs torch for this machine.",
}


def environment() -> str:
    """Return the name of the running Python's environment and why it was chosen, for `accel why`.

    Returns an empty string if the environment is not in a folder that `accel setup --into` created.
    """
    # The import is here, because `accel --help` does not need the module.
    from accel_tools.setup import folder

    return folder.describe_running_environment()


def remarks(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield a remark about each installed device package that neither a plugin nor `ACCEL_IMPORT` imports.

    `accel list` and `accel why` print the remarks. `verdicts` contains the verdicts on the plugins'
    backends. `accel --import` sets `ACCEL_IMPORT`.
    """
    # The import is here, because `accel --help` does not need the module.
    from accel_tools.doctor.unregistered import find_unregistered_packages

    # `accel --import` sets the variable to the names of the modules that the user requests.
    imported_modules = os.environ.get("ACCEL_IMPORT", "").split(",")
    for verdict in verdicts:
        imported_modules += verdict.vendor_import
    top_level_modules = []
    for module in imported_modules:
        top_level_module, _, _ = module.strip().partition(".")
        top_level_modules.append(top_level_module)
    for package in find_unregistered_packages(top_level_modules):
        if package.device_type:
            command = f"accel new {package.device_type} --no-private-use1"
            yield f"{package.description}. Next step: write a plugin for this package: {command}"
        else:
            yield (
                f"{package.description}, but neither torch nor a plugin imports this package. "
                f"Next step: to try the package, accel --import {package.module} list"
            )
