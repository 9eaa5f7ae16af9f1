"""`StagedProcessGroup`: torch.distributed's collectives for a device that has none of its own."""

from __future__ import annotations

from accel_core.staging.moving import Moving
from accel_core.staging.reducing import Reducing

__all__ = ["StagedProcessGroup"]


class StagedProcessGroup(Reducing, Moving):
    """A process group whose tensors travel through host memory, over gloo.

    It takes tensors of the device and of the CPU, of every data type, contiguous or not, empty or not.
    Values are those that gloo gives for the same tensors on the CPU. Every collective returns a `Work`;
    copies run in two threads of the group, beside the program and beside each other. A collective that
    fails raises `CommunicationError`, a `RuntimeError`, from `wait()`.

    Members have the names and the arguments that torch.distributed calls them with.
    """
