"""`MPSAccelerator`: the members to override for torch.mps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from accel_core import DeviceProperties, TorchAccelerator, UnsupportedError

if TYPE_CHECKING:
    import torch
    from torch.types import Device

__all__ = ["MPSAccelerator"]


class MPSAccelerator(TorchAccelerator):
    """The accelerator for the GPU of an Apple chip, which shares memory with the CPU.

    The device has one queue, and every `Stream` is that queue. torch counts memory
    peaks on Metal from release 2.13 on. With an older torch, the members for memory
    peaks return the memory that Metal currently reserves, as in DeepSpeed.
    """

    # Metal has always had float16.
    _has_fp16_on_every_device = True

    # Nature and devices

    def is_synchronized_device(self) -> bool:
        """Return True, as in DeepSpeed (0.19.8): the device has only one queue, so no
        stream has to wait for another stream.

        The host still has to wait: call `synchronize` before you read the clock. A host
        timer is then as precise as an event, so `use_host_timers` returns True, too.
        """
        return True

    def current_device(self) -> int:
        """Return 0, the index of the only device."""
        return 0

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the device's properties, including the chip's name and its number of GPU cores."""
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        properties = replace(super().device_properties(device_index), integrated=True)
        metal = self._torch.backends.mps
        # torch before 2.7 lacks these functions, and they need a device.
        if not (hasattr(metal, "get_name") and self.is_available()):
            return properties
        return replace(
            properties,
            name=metal.get_name(),
            multiprocessors=int(metal.get_core_count()),
        )

    # Random numbers

    def default_generator(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Generator:
        """Return the device's random number generator.

        Raises `InvalidDeviceError` (a `ValueError`) if the index is out of range.
        """
        self._check_device_argument(device_index, device)
        generator: torch.Generator = self.device_module._get_default_mps_generator()
        return generator

    # Streams

    def _find_stream_and_event_classes(self) -> tuple[Any, Any]:
        # torch.Stream would work too, as a handle of the only queue, but torch's events
        # are not Metal's events.
        stream_class = None
        return stream_class, self.device_module.Event

    # Memory

    def memory_allocated(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the memory in bytes that tensors occupy on the GPU."""
        self._check_device_argument(device_index, device)
        return int(self.device_module.current_allocated_memory())

    def memory_reserved(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the memory that Metal reserves for this process, in bytes.

        The number includes the allocator's cache and Metal's graphs.
        """
        self._check_device_argument(device_index, device)
        return int(self.device_module.driver_allocated_memory())

    @cached_property
    def _torch_counts_peaks(self) -> bool:
        """Whether torch counts memory peaks on Metal, as it does from release 2.13 on."""
        try:
            super().max_memory_allocated()
        except UnsupportedError:
            return False
        return True

    def max_memory_allocated(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the peak memory in bytes that tensors occupied.

        If torch does not count peaks, return `memory_reserved()`.
        """
        self._check_device_argument(device_index, device)
        if self._torch_counts_peaks:
            return super().max_memory_allocated()
        return self.memory_reserved()

    def max_memory_reserved(
        self, device_index: Device = None, device: Device = None
    ) -> int:
        """Return the peak memory in bytes that Metal reserved.

        If torch does not count peaks, return `memory_reserved()`.
        """
        self._check_device_argument(device_index, device)
        if self._torch_counts_peaks:
            return super().max_memory_reserved()
        return self.memory_reserved()

    def reset_peak_memory_stats(
        self, device_index: Device = None, device: Device = None
    ) -> None:
        """Reset the memory peaks if torch counts them, and otherwise do nothing."""
        self._check_device_argument(device_index, device)
        if self._torch_counts_peaks:
            super().reset_peak_memory_stats()

    def memory_stats(
        self, device_index: Device = None, device: Device = None
    ) -> Mapping[str, Any]:
        """Return memory statistics in bytes, under torch's keys.

        If torch does not count peaks, the result has no keys for peaks.
        """
        self._check_device_argument(device_index, device)
        stats = super().memory_stats()
        if self._torch_counts_peaks:
            return stats
        return {key: stats[key] for key in stats if not key.endswith(".peak")}

    def total_memory(self, device_index: Device = None, device: Device = None) -> int:
        """Return the memory limit that Metal recommends for a process, in bytes.

        Metal shares the CPU's memory.
        """
        self._check_device_argument(device_index, device)
        return int(self.device_module.recommended_max_memory())

    # torch's pin_memory raises an error on Metal or returns a tensor on the device
    # (pytorch#86060, #181374). Shared memory needs no pinning, so every host tensor
    # counts as pinned.

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.cpu()

    def _torch_empty_pinned(
        self, tensor: torch.Tensor, shape: tuple[int, ...]
    ) -> torch.Tensor:
        return tensor.new_empty(shape, device="cpu")

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cpu"

    # Data types

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Return whether macOS is 14 or newer, which bfloat16 needs on Metal.

        Metal does not report emulation, so `including_emulation` has no effect.
        """
        if not self.is_available():
            return False
        return bool(self._torch.backends.mps.is_macos_or_newer(14, 0))

    def is_fp64_supported(self) -> bool:
        """Return False: Metal has no float64."""
        return False
