"""List all benchmark steps of an accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_tools.bench.collectives import collective_steps
from accel_tools.bench.copies import copy_steps
from accel_tools.bench.matrices import launch_steps, matrix_steps
from accel_tools.bench.records import FULL, Effort, Step

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["all_steps"]


def all_steps(
    accelerator: Accelerator, effort: Effort = FULL, ranks: int | None = None
) -> list[Step]:
    """Return all benchmark steps of an accelerator in order, without running them.

    A step that fails does not raise an error: its measurements contain the error.

    Args:
        accelerator: The accelerator to measure.
        effort: The limits on times and data sizes.
        ranks: The number of ranks in the collectives. `None` means one rank per device, but at least two
            ranks. With 1, the collectives are not measured.
    """
    return [
        *copy_steps(accelerator, effort),
        *matrix_steps(accelerator, effort),
        *launch_steps(accelerator, effort),
        *collective_steps(accelerator, effort, ranks),
    ]
