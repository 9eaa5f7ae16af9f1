"""Memory statistics and the memory cache, implemented with `torch.accelerator`."""

from __future__ import annotations

from typing import Any

import torch

from accel_simulated import device as simulated
from accel_simulated.parts.devices import _get_device_index
from accel_simulated.parts.lifecycle import is_initialized, started_accelerator

__all__ = [
    "empty_cache", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]  # fmt: skip


def memory_stats(device: Any = None) -> dict[str, Any]:
    """Return the device's memory statistics, under the keys that torch uses.

    The result is empty if the runtime has not started yet.
    """
    if not is_initialized():
        return {}
    index = _get_device_index(device, optional=True)
    return dict(torch.accelerator.memory_stats(index))


def memory_allocated(device: Any = None) -> int:
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Any = None) -> int:
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Any = None) -> int:
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Any = None) -> int:
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def mem_get_info(device: Any = None) -> tuple[int, int]:
    free, total = started_accelerator().get_memory_info(
        _get_device_index(device, optional=True)
    )
    return int(free), int(total)


def empty_cache() -> None:
    if is_initialized():
        torch.accelerator.empty_cache()


def reset_peak_memory_stats(device: Any = None) -> None:
    started_accelerator().reset_peak_memory_stats(
        _get_device_index(device, optional=True)
    )


def reset_accumulated_memory_stats(device: Any = None) -> None:
    started_accelerator().reset_accumulated_memory_stats(
        _get_device_index(device, optional=True)
    )


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    simulated.library.sim_set_fraction(
        _get_device_index(device, optional=True), fraction
    )


# These are old names. `surface.add_vendor_names` adds a warning to each name that the surface file marks as
# deprecated.


def memory_cached(device: Any = None) -> int:
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    return max_memory_reserved(device)


def reset_max_memory_allocated(device: Any = None) -> None:
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Any = None) -> None:
    reset_peak_memory_stats(device)
