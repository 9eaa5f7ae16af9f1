"""Our accelerator and strategies for Lightning's `Trainer`. Importing this imports Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from accel_train.lightning import _kit
from accel_train.lightning._members import (
    AcceleratorMembers,
    DataParallelMembers,
    SingleDeviceMembers,
    for_our_device,
)

__all__ = ["AccelAccelerator", "DataParallel", "SingleDevice"]

_strategies: Any = _kit.lightning_module("pytorch", "strategies")
_Accelerator: Any = _kit.lightning_module("pytorch", "accelerators").Accelerator


class AccelAccelerator(AcceleratorMembers, _Accelerator):  # type: ignore[misc]
    """Lightning's accelerator for the backend `backend_name`."""

    def __reduce__(self) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
        return _kit.unpickled, ("pytorch", self.backend_name)


class SingleDevice(SingleDeviceMembers, _strategies.SingleDeviceStrategy):  # type: ignore[misc]
    """One process on one device, the one that the accelerator says."""

    precision_plugin = for_our_device(_strategies.Strategy.precision_plugin)


class DataParallel(DataParallelMembers, _strategies.DDPStrategy):  # type: ignore[misc]
    """A process per device, with DistributedDataParallel over the accelerator's communication backend."""

    precision_plugin = for_our_device(_strategies.Strategy.precision_plugin)

    def _set_ranks(self) -> None:
        self.set_world_ranks()

    def determine_ddp_device_ids(self) -> list[int] | None:
        """Give the `device_ids` for DistributedDataParallel."""
        return self._device_ids()

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """The tensor reduced over all processes; what is no tensor is returned as it is."""
        return self._reduced(super().reduce, tensor, group, reduce_op)
