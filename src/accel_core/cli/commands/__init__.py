"""The commands of `accel`: the core's own, and those that other distributions bring.

A distribution announces a command by an entry point of group `accel.commands`, whose name is the command's
and whose value names a package: its `SUMMARIES` has a line for each of its commands, and its module of the
command's name has the click command, `command`. Listing commands imports none of them. A function `remarks`
of the package is given the verdicts of `accel list` and `accel why`, and gives lines to show beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core._support.packages import EntryPoint
from accel_core.errors import CAUGHT, root_cause
from accel_core.settings import entry_points

if TYPE_CHECKING:
    from accel_core.detection import Verdict

__all__ = ["BESIDE", "GROUP", "SUMMARIES", "Announced", "announced", "remarks"]

#: Entry points that name a package of commands.
GROUP = "accel.commands"
#: The core's own, a module here each, with its line in `accel --help`: the first sentence of its own help.
SUMMARIES = {
    "completion": "Print the script for shell completion.",
    "help": "Explain a command, or the settings: accel help variables.",
    "list": "List the backends: what can be used, and why not the others.",
    "why": "Say what would be chosen and why each other is not.",
}
#: Whose the commands are that are released with the core.
BESIDE = {
    **dict.fromkeys(("bench", "doctor", "facts", "info", "setup"), "accel-tools"),
    **dict.fromkeys(("deepspeed", "doors", "env", "ops", "run"), "accel-train"),
    **dict.fromkeys(("new", "simulate", "try", "verify"), "accel-testing"),
}


class Announced(NamedTuple):
    """A command that can be asked for: one line for it, and the package that has it."""

    summary: str
    #: Empty where the package fails to import, which `summary` says.
    package: str

    def load(self, name: str) -> Any:
        """The click command; raises what its module raises."""
        return import_module(f"{self.package}.{name}").command


def announced() -> dict[str, Announced]:
    """Every command by name, sorted; of two others of one name the first that is found."""
    found = {name: Announced(summary, __name__) for name, summary in SUMMARIES.items()}
    for entry_point in entry_points(GROUP):
        if entry_point.name not in found:
            found[entry_point.name] = _read(entry_point.name, entry_point)
    return dict(sorted(found.items()))


def remarks(verdicts: Iterable[Verdict]) -> list[str]:
    """Collect the remarks on these verdicts from other commands' packages: their function `remarks`."""
    named = dict.fromkeys(command.package for command in announced().values() if command.package)
    told = (getattr(sys.modules[package], "remarks", None) for package in named if package != __name__)
    return [line for function in told if function is not None for line in function(verdicts)]


def _read(name: str, entry_point: EntryPoint) -> Announced:
    try:
        package = entry_point.load()
        if name not in package.SUMMARIES:
            raise LookupError(f"{package.__name__}.SUMMARIES has no line for {name!r}")
        return Announced(str(package.SUMMARIES[name]), package.__name__)
    except CAUGHT as error:
        who = f"{entry_point.distribution} {entry_point.version}"
        return Announced(f"{who} cannot be used: {root_cause(error)}", "")
