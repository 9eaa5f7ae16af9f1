"""Simulate a vendor's communication backend, such as `hccl`, with accel-train's staged process group."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from accel_core import Backend, TorchAccelerator
from accel_simulated import at_start, faults
from accel_train import StagedProcessGroup

__all__ = ["hash_tensors", "make_process_group_class", "register"]


class SimulatedCollective(StagedProcessGroup):
    """A process group with a vendor's name that copies tensors through host memory."""

    def __init__(
        self, name: str, store: Any, rank: int, size: int, timeout: timedelta
    ) -> None:
        _, device_type = at_start.backend_and_device_type()
        backend = Backend(name=device_type, priority=1, device_type=device_type)
        accelerator = TorchAccelerator(backend)
        super().__init__(accelerator, store, rank, size, timeout, name=name)

    def on_call(self) -> None:
        faults.count_collective_or_hang()


def register(name: str, device_type: str) -> None:
    """Register the communication backend `name` with torch.distributed for a single device type."""
    from torch.distributed import Backend as TorchBackend

    def create(
        store: Any, rank: int, size: int, timeout: timedelta
    ) -> SimulatedCollective:
        return SimulatedCollective(name, store, rank, size, timeout)

    # `devices` must be a list: torch would treat each letter of a string as a device
    # (`default_device_backend_map`).
    TorchBackend.register_backend(name, create, devices=[device_type])


def make_process_group_class(name: str) -> type:
    """Return a simulated process group class that replaces torch's class, such as `ProcessGroupNCCL`.

    `name` is the name of the communication backend, such as `"nccl"`.
    """

    class Options:
        """The process group options that torch or a program can set."""

        _timeout = timedelta(minutes=10)

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            self.is_high_priority_stream = is_high_priority_stream

    class ProcessGroup(SimulatedCollective):
        def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
            super().__init__(name, store, rank, size, options._timeout)

        # torch.distributed calls this method on a new group of NCCL.
        def _set_sequence_number_for_group(self) -> None:
            pass

    ProcessGroup.Options = Options
    return ProcessGroup


def hash_tensors(tensors: Iterable[Any]) -> int:
    """Return a checksum of the tensors' values, like `_hash_tensors` in torch's c10d.

    Tensors with equal values have the same checksum.
    """
    checksum = 0
    for tensor in tensors:
        checksum = zlib.crc32(repr(tensor.tolist()).encode(), checksum)
    return checksum
