"""A collective backend with a vendor's name: accel-train's staged process group."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from accel_core import Backend, TorchAccelerator
from accel_simulated import at_start, faults
from accel_train import StagedProcessGroup

__all__ = ["register", "stand_in_for"]


class SimulatedCollective(StagedProcessGroup):
    """A process group of a vendor's; its tensors travel through host memory."""

    def __init__(
        self, name: str, store: Any, rank: int, size: int, timeout: timedelta
    ) -> None:
        _, device_type = at_start.device()
        backend = Backend(name=device_type, priority=1, device_type=device_type)
        accelerator = TorchAccelerator(backend)
        super().__init__(accelerator, store, rank, size, timeout, name=name)

    def on_call(self) -> None:
        faults.meet_collective()


def register(name: str, device: str) -> None:
    """Make `init_process_group(name)` return this group for tensors on `device`."""
    from torch.distributed import Backend as Backends

    def create(
        store: Any, rank: int, size: int, timeout: timedelta
    ) -> SimulatedCollective:
        return SimulatedCollective(name, store, rank, size, timeout)

    # A list: of a string torch takes each letter for a device in
    # `default_device_backend_map`.
    Backends.register_backend(name, create, devices=[device])


def stand_in_for(name: str) -> type:
    """Return a class that replaces torch's own `ProcessGroupNCCL` or `…XCCL`."""

    class Options:
        """The attributes that torch sets."""

        _timeout = timedelta(minutes=10)

    class StandIn(SimulatedCollective):
        def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
            super().__init__(name, store, rank, size, options._timeout)

        def _set_sequence_number_for_group(self) -> None:
            pass

    StandIn.Options = Options
    return StandIn
