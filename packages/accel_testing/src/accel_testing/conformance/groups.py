"""The groups of checks, with their names, levels and files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["GROUPS", "LEVELS", "USUAL_LEVEL", "Group"]

#: The subject of each level.
LEVELS = {
    0: "the declaration",
    1: "the interface",
    2: "computations on the device",
    3: "several ranks",
    4: "frameworks",
}

#: The highest level that `accel verify` runs by default, which is the last level that depends on the device
#: alone. The next level depends on the installed frameworks, and takes minutes.
USUAL_LEVEL = 3


class Group(NamedTuple):
    """A group of conformance checks on one subject, which are defined in the same file."""

    #: The module with the checks, below `accel_testing.conformance` and without the prefix `test_`.
    name: str
    level: int
    #: The number of seconds after which a check counts as hung.
    seconds: float = 60.0
    #: The packages that the checks need. At least one package of each inner tuple must be installed.
    needs: tuple[tuple[str, ...], ...] = ()

    @property
    def process(self) -> str:
        """Return the name of the child process that runs this group. Groups with equal names share a process.

        Groups share processes because importing torch takes longer than most checks.
        """
        return self.name.partition(".")[0]

    @property
    def file(self) -> Path:
        """Return the file that contains the group's checks and that pytest collects."""
        *folders, last = self.name.split(".")
        return Path(__file__).parent.joinpath(*folders, f"test_{last}.py")


#: The package that runs a framework on an accelerator.
_TRAIN = ("accel_train",)

GROUPS = (
    Group("declaration", 0),
    Group("interface.signatures", 1),
    Group("interface.answers", 1),
    Group("interface.types", 1),
    Group("interface.selection", 1),
    Group("interface.sharing", 1),
    Group("interface.guards", 1),
    Group("interface.traces", 1, seconds=120.0),
    Group("compute.arithmetic", 2),
    Group("compute.numbers", 2),
    Group("compute.reductions", 2),
    Group("compute.forms", 2),
    Group("compute.randomness", 2),
    Group("compute.queues", 2),
    Group("compute.amounts", 2),
    Group("compute.compiling", 2, seconds=240.0),
    Group("compute.samples", 2, seconds=240.0),
    Group("ranks.distributed", 3, seconds=400.0),
    Group("frameworks.deepspeed", 4, 500.0, (("deepspeed",), _TRAIN)),
    Group(
        "frameworks.lightning", 4, 500.0, (("lightning", "pytorch_lightning"), _TRAIN)
    ),
    Group(
        "frameworks.transformers",
        4,
        500.0,
        (("transformers",), ("accelerate",), _TRAIN),
    ),
)
