"""`HPUAccelerator`: the members that torch.hpu needs to override."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from accel_core import DeviceProperties, InvalidDeviceError, TorchAccelerator

if TYPE_CHECKING:
    import torch
    from torch.types import Device

    from accel_core import Graph

__all__ = ["HPUAccelerator"]

#: The names of the bridge's statistics, by the keys that torch uses.
_STATISTICS = {
    "allocated_bytes.all.current": "InUse",
    "allocated_bytes.all.peak": "MaxInUse",
    "reserved_bytes.all.current": "Limit",
    "reserved_bytes.all.peak": "Limit",
    "allocation.all.current": "ActiveAllocs",
    "allocation.all.allocated": "NumAllocs",
    "allocation.all.freed": "NumFrees",
}


def module_ids() -> tuple[int, ...] | None:
    """Return the module id of each device, by index, from `hl-smi`; `None` if `hl-smi`
    is missing, fails, takes longer than 20 seconds, or prints no ids.

    Source of the query: https://docs.habana.ai, Multiple Workloads on a Single Docker.
    """
    command = ["hl-smi", "-Q", "index,module_id", "-f", "csv"]
    printed = ""
    with suppress(OSError, subprocess.SubprocessError):
        printed = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout
    ids = {}
    for line in printed.splitlines():
        row = line.replace(",", " ").split()
        if len(row) == 2 and "".join(row).isdigit():
            ids[int(row[0])] = int(row[1])
    if not ids or sorted(ids) != list(range(len(ids))):
        return None
    return tuple(ids[index] for index in sorted(ids))


class HPUAccelerator(TorchAccelerator):
    """Intel Gaudi accelerators. A process uses one device, which is called `"hpu"`.

    Members that work on this device, such as members for its random number generator,
    accept any index and ignore it. A device of another type raises
    `InvalidDeviceError`. The constructor changes no variable and no mode of torch;
    `apply_vendor_defaults` does.
    """

    def apply_vendor_defaults(self) -> tuple[str, ...]:
        """Set those of Gaudi's variables that are unset, switch torch to deterministic
        algorithms, and return the changes.

        DeepSpeed does the same when it creates its HPU accelerator. The mode applies to
        all of torch in this process. New tensors stay uninitialised, although the mode
        would fill them by default.
        """
        changed = super().apply_vendor_defaults()
        if self._torch.are_deterministic_algorithms_enabled():
            return changed
        self._torch.use_deterministic_algorithms(True)
        self._torch.utils.deterministic.fill_uninitialized_memory = False
        return (*changed, "torch.use_deterministic_algorithms(True)")

    def _all_device_ids(self) -> tuple[int | str, ...] | None:
        """Return the module ids by index, from `hl-smi`; `None` if they are unknown.
        Indices cannot replace them.
        """
        return module_ids()

    # Nature and devices

    def resolves_data_dependency(self) -> bool:
        """Return True: Gaudi's graph compiler orders dependent work."""
        return True

    def handles_memory_backpressure(self) -> bool:
        """Return True: if memory is short, an allocation waits until running work frees
        memory.
        """
        return True

    def _unchecked_index(self, device: Any) -> int | None:
        if device is None:
            return None
        number = super()._unchecked_index(device)
        # A rank whose variable is not set may pass -1.
        if number is not None and number < 0:
            raise InvalidDeviceError(f"{self.name}: device index {number} is negative")
        return number

    def device_name(self, device_index: Device = None, device: Device = None) -> str:
        """Return `"hpu"`; the index is ignored."""
        self._unchecked_index(self._device_argument(device_index, device))
        return super().device_name()

    def device(
        self, device_index: Device = None, device: Device = None
    ) -> torch.device:
        """Return `torch.device("hpu")`; the index is ignored."""
        self._unchecked_index(self._device_argument(device_index, device))
        return super().device()

    def synchronize(self, device_index: Device = None, device: Device = None) -> None:
        """Wait until the process's device has finished all work; the index is ignored."""
        self._unchecked_index(self._device_argument(device_index, device))
        self.device_module.synchronize()

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the properties, with the product name from Habana's bridge.

        The bridge reports its other properties only as text.
        """
        index = self._index(device_index, device)
        return replace(
            super().device_properties(index),
            name=self.device_module.get_device_name(index),
        )

    # Random numbers: a process has one generator

    def default_generator(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Generator:
        """Return the process's generator; the index is ignored."""
        self._unchecked_index(self._device_argument(device_index, device))
        return super().default_generator(0)

    def get_rng_state(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Tensor:
        """Return the state of the process's generator; the index is ignored."""
        self._unchecked_index(self._device_argument(device_index, device))
        return super().get_rng_state(0)

    def set_rng_state(
        self,
        new_state: torch.Tensor,
        device_index: Device = None,
        strict: bool = True,
        device: Device = None,
    ) -> None:
        """Restore the state of the process's generator; the index is ignored."""
        self._unchecked_index(self._device_argument(device_index, device))
        super().set_rng_state(new_state, 0, strict)

    # Streams of the process's device

    def current_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the current stream of this thread; the index is ignored."""
        self._unchecked_index(self._device_argument(device_index, device))
        return super().current_stream()

    def default_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the device's default stream; the index is ignored."""
        self._unchecked_index(self._device_argument(device_index, device))
        return super().default_stream()

    # Memory and data types

    def memory_stats(
        self, device_index: Device = None, device: Device = None
    ) -> Mapping[str, Any]:
        """Return the bridge's statistics in bytes and counts, under torch's keys and
        the bridge's keys.

        `reserved_bytes` is the whole memory budget, because the bridge does not report
        the reserved part.
        """
        if device is not None:
            device_index = self._device_argument(device_index, device)
        stats = super().memory_stats(device_index)
        return {
            **stats,
            **{
                torch_key: stats[vendor_key]
                for torch_key, vendor_key in _STATISTICS.items()
                if vendor_key in stats
            },
        }

    def is_fp16_supported(self) -> bool:
        """Return whether the bridge reports float16 support (Gaudi 2 and newer). If the
        bridge does not report it, float16 is tried.
        """
        try:
            experimental = import_module("habana_frameworks.torch.utils.experimental")
        except ImportError:
            return super().is_fp16_supported()
        return self.is_available() and bool(experimental._is_fp16_supported())

    # Graphs: the bridge supports them in lazy mode only

    def capture_to_graph(
        self,
        graph: Graph | None,
        pool: Any = None,
        stream: torch.Stream | None = None,
        **options: Any,
    ) -> AbstractContextManager[Any]:
        """Return the bridge's context manager that captures into `graph`.

        `pool` is ignored, because Gaudi's graphs share no memory pool.
        """
        return super().capture_to_graph(graph, stream=stream, **options)
