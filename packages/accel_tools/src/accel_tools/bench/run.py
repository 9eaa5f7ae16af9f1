"""Every measurement of an accelerator, as steps to run one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_tools.bench.collectives import collectives
from accel_tools.bench.copies import copies
from accel_tools.bench.matrices import launches, matrices
from accel_tools.bench.records import FULL, Effort, Step

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["steps"]


def steps(
    accelerator: Accelerator, effort: Effort = FULL, ranks: int | None = None
) -> list[Step]:
    """Return the steps in order; none has run yet.

    `ranks`: how many ranks take part in the collectives; `None` means one for each device, and at least two.
    With 1 the collectives are skipped, with a reason. Running a step raises nothing: its measurements hold
    the errors.
    """
    return [
        *copies(accelerator, effort),
        *matrices(accelerator, effort),
        *launches(accelerator, effort),
        *collectives(accelerator, effort, ranks),
    ]
