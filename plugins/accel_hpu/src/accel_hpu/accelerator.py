"""`HPUAccelerator`: the members to override for torch.hpu."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from accel_core import DeviceProperties, InvalidDeviceError, TorchAccelerator

if TYPE_CHECKING:
    import torch
    from torch.types import Device

    from accel_core import Graph

__all__ = ["HPUAccelerator"]

#: The keys under which Habana's bridge reports memory statistics, by torch's keys.
_BRIDGE_KEYS = {
    "allocated_bytes.all.current": "InUse",
    "allocated_bytes.all.peak": "MaxInUse",
    "reserved_bytes.all.current": "Limit",
    "reserved_bytes.all.peak": "Limit",
    "allocation.all.current": "ActiveAllocs",
    "allocation.all.allocated": "NumAllocs",
    "allocation.all.freed": "NumFrees",
}
#: A line of `hl-smi`'s output: a device's index and its module id, separated by a comma.
_INDEX_AND_ID = re.compile(r"[\s,]*(?P<index>[0-9]+)[\s,]+(?P<id>[0-9]+)[\s,]*")
#: The index of the only random number generator of a process.
_ONLY_GENERATOR = 0


def read_module_ids() -> tuple[int, ...] | None:
    """Return the module id of each Gaudi device, by index, as `hl-smi` reports it.

    The result is `None` if `hl-smi` is missing, fails, takes longer than 20 seconds, or
    prints no ids. Source of the query: https://docs.habana.ai, Multiple Workloads on a
    Single Docker.
    """
    command = ["hl-smi", "-Q", "index,module_id", "-f", "csv"]
    try:
        output = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return _parse_module_ids(output)


def _parse_module_ids(output: str) -> tuple[int, ...] | None:
    """Return the module ids in lines such as "0, 3", which hold an index and an id.

    Other lines are skipped. The result is `None` if there is no id or an index is
    missing.
    """
    id_of_index = {}
    for line in output.splitlines():
        match = _INDEX_AND_ID.fullmatch(line)
        if match:
            id_of_index[int(match["index"])] = int(match["id"])
    expected_indices = range(len(id_of_index))
    if not id_of_index or set(id_of_index) != set(expected_indices):
        return None
    return tuple(id_of_index[index] for index in expected_indices)


class HPUAccelerator(TorchAccelerator):
    """The accelerator for Intel Gaudi. A process uses one device, called `"hpu"`.

    Members such as `get_rng_state` accept any index from 0 on, and use the process's
    device. They raise `InvalidDeviceError` for a negative index or a device of another
    type. The constructor changes no environment variable and no setting of torch, but
    `apply_vendor_defaults` does.
    """

    def apply_vendor_defaults(self) -> tuple[str, ...]:
        """Set Gaudi's unset environment variables, make torch use deterministic
        algorithms, and return the changes.

        DeepSpeed does the same when it creates its HPU accelerator. The use of
        deterministic algorithms affects all of torch in this process. `torch.empty`
        still returns uninitialized memory, which torch would fill otherwise.
        """
        changed = super().apply_vendor_defaults()
        if self._torch.are_deterministic_algorithms_enabled():
            return changed
        self._torch.use_deterministic_algorithms(True)
        # Deterministic algorithms would also make torch fill uninitialized memory.
        self._torch.utils.deterministic.fill_uninitialized_memory = False
        return (*changed, "torch.use_deterministic_algorithms(True)")

    def _all_device_ids(self) -> tuple[int | str, ...] | None:
        """Return the module id of each device, by index, or `None` if they are unknown.

        A module id can differ from the device's index.
        """
        return read_module_ids()

    # Nature and devices

    def resolves_data_dependency(self) -> bool:
        """Return True: Gaudi's graph compiler orders dependent work."""
        return True

    def handles_memory_backpressure(self) -> bool:
        """Return True: if memory is short, an allocation waits until work frees memory."""
        return True

    def _unchecked_index(self, device: Any) -> int | None:
        """Return the index of a device, or `None` for a device without an index.

        Raises `InvalidDeviceError` for a negative index.
        """
        if device is None:
            return None
        number = super()._unchecked_index(device)
        # A program may pass -1 if the variable for its local rank is not set.
        if number is not None and number < 0:
            raise InvalidDeviceError(f"{self.name}: device index {number} is negative")
        return number

    def _check_device(self, device_index: Device, device: Device) -> None:
        """Raise `InvalidDeviceError` for a negative index or a device of another type."""
        self._unchecked_index(self._merge_device_arguments(device_index, device))

    def device_name(self, device_index: Device = None, device: Device = None) -> str:
        """Return `"hpu"`. The index is ignored."""
        self._check_device(device_index, device)
        return super().device_name()

    def device(
        self, device_index: Device = None, device: Device = None
    ) -> torch.device:
        """Return `torch.device("hpu")`. The index is ignored."""
        self._check_device(device_index, device)
        return super().device()

    def synchronize(self, device_index: Device = None, device: Device = None) -> None:
        """Wait until the process's device has finished all work. The index is ignored."""
        self._check_device(device_index, device)
        self.device_module.synchronize()

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the device's properties, with the product name from Habana's bridge.

        The bridge reports other properties only as text.
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
        """Return the process's random number generator. The index is ignored."""
        self._check_device(device_index, device)
        return super().default_generator(_ONLY_GENERATOR)

    def get_rng_state(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Tensor:
        """Return the state of the process's random number generator. The index is ignored."""
        self._check_device(device_index, device)
        return super().get_rng_state(_ONLY_GENERATOR)

    def set_rng_state(
        self,
        new_state: torch.Tensor,
        device_index: Device = None,
        strict: bool = True,
        device: Device = None,
    ) -> None:
        """Restore the state of the process's random number generator. The index is ignored."""
        self._check_device(device_index, device)
        super().set_rng_state(new_state, _ONLY_GENERATOR, strict)

    # Streams of the process's device

    def current_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the current stream of this thread. The index is ignored."""
        self._check_device(device_index, device)
        return super().current_stream()

    def default_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the device's default stream. The index is ignored."""
        self._check_device(device_index, device)
        return super().default_stream()

    # Memory and data types

    def memory_stats(
        self, device_index: Device = None, device: Device = None
    ) -> Mapping[str, Any]:
        """Return memory statistics in bytes and counts, under torch's keys and the keys
        of Habana's bridge.

        `reserved_bytes` is the bridge's memory limit, because the bridge does not
        report how much is reserved.
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        bridge_stats = super().memory_stats(device_index)
        stats = dict(bridge_stats)
        for torch_key, bridge_key in _BRIDGE_KEYS.items():
            if bridge_key in bridge_stats:
                stats[torch_key] = bridge_stats[bridge_key]
        return stats

    def is_fp16_supported(self) -> bool:
        """Return whether the device supports float16, as Gaudi 2 and newer do.

        Habana's bridge reports whether float16 is supported. If a bridge does not
        report it, float16 is tried.
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
        """Return a context manager that captures the work of its block into `graph`.

        `pool` is ignored, because Gaudi's graphs cannot share a memory pool.
        """
        # `pool` is not passed on, because Gaudi's graphs cannot share a memory pool.
        return super().capture_to_graph(graph, stream=stream, **options)
