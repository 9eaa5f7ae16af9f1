"""`MPSAccelerator`: what differs on torch.mps from any other device module of torch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accel_core import DeviceProperties, TorchAccelerator

if TYPE_CHECKING:
    import torch

__all__ = ["MPSAccelerator"]


class MPSAccelerator(TorchAccelerator):
    """The one GPU of an Apple processor, which works in the processor's memory.

    It has one queue and no user streams: `Stream` stands for that queue. Metal counts no peaks, so the
    members that ask for one raise `UnsupportedError` unless torch counts them.
    """

    # Nature and devices

    def use_host_timers(self) -> bool:
        """True: with one queue and `synchronize`, the host's clock tells as much as an event."""
        return True

    def current_device(self) -> int:
        """0: there is one device."""
        return 0

    def device_properties(self, device_index: int | None = None) -> DeviceProperties:
        """With the processor's name and the number of its GPU cores."""
        properties = replace(super().device_properties(device_index), integrated=True)
        metal = self._torch.backends.mps
        if not (hasattr(metal, "get_name") and self.is_available()):  # torch before 2.7; no Metal
            return properties
        return replace(properties, name=metal.get_name(), multiprocessors=int(metal.get_core_count()))

    # Random numbers

    def default_generator(self, device_index: int | None) -> torch.Generator:
        """The one generator. Raises `ValueError` when the index is out of range."""
        self._index(device_index)
        generator: torch.Generator = self.device_module._get_default_mps_generator()
        return generator

    # Streams

    def _find_streams(self) -> tuple[Any, Any]:
        # torch.Stream would serve too, as many handles of the one queue; its events are not Metal's.
        return None, self.device_module.Event

    # Memory

    def memory_allocated(self, device_index: int | None = None) -> int:
        """Bytes that tensors hold."""
        return int(self.device_module.current_allocated_memory())

    def memory_reserved(self, device_index: int | None = None) -> int:
        """Bytes that Metal holds for this process, the allocator's cache and its own graphs included."""
        return int(self.device_module.driver_allocated_memory())

    def total_memory(self, device_index: int | None = None) -> int:
        """Bytes that Metal recommends one process to use; the memory itself is the host's."""
        return int(self.device_module.recommended_max_memory())

    # Data types

    def is_bf16_supported(self) -> bool:
        """From macOS 14 on, which brought bfloat16 to Metal."""
        return self.is_available() and bool(self._torch.backends.mps.is_macos_or_newer(14, 0))

    def is_fp16_supported(self) -> bool:
        """Whether there is a device: Metal has always had float16."""
        return self.is_available()

    def is_fp64_supported(self) -> bool:
        """False: Metal has no float64."""
        return False
