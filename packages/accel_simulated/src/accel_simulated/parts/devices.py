"""Functions that count, select and describe devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from accel_simulated import device as simulated
from accel_simulated.parts.lifecycle import started_accelerator

__all__ = [
    "_get_device_index", "can_device_access_peer", "current_device", "device", "device_count", "device_of",
    "get_device_capability", "get_device_name", "get_device_properties", "set_device", "synchronize",
]  # fmt: skip


def _get_device_index(
    device: Any, optional: bool = False, allow_cpu: bool = False
) -> int:
    """Return the index of `device`, which may be an index, a name or a `torch.device`.

    If `optional` is true, `None` and a device without an index mean the current device. If `allow_cpu` is
    true, the CPU has the index -1. Raises `ValueError` if the device has a different type.
    """
    device_type = simulated.vendor.name
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu" and allow_cpu:
            return -1  # the index of the CPU
        if device.type != device_type:
            raise ValueError(f"Expected a {device_type} device, but got: {device}")
        device = device.index
    if device is not None:
        return int(device)
    if not optional:
        raise ValueError(
            f"Expected an index or a device of type {device_type}, but got: None"
        )
    return int(started_accelerator().current_device_index())


def device_count() -> int:
    return simulated.count


def current_device() -> int:
    return int(started_accelerator().current_device_index())


def set_device(device: Any) -> None:
    index = _get_device_index(device, optional=True)
    if index >= 0:  # torch.cuda.set_device ignores negative indices, too
        started_accelerator().set_device_index(index)


def synchronize(device: Any = None) -> None:
    started_accelerator().synchronize(_get_device_index(device, optional=True))


class device:
    """A context manager that switches to the given device, and back to the previous device at the end."""

    def __init__(self, device: Any) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current_device()
        if self.idx >= 0:  # a negative index keeps the current device
            set_device(self.idx)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        set_device(self.prev_idx)


class device_of(device):
    """A context manager that switches to a tensor's device, and back to the previous device at the end.

    Nothing changes if the tensor is not on a simulated device.
    """

    def __init__(self, obj: Any) -> None:
        tensor_device = getattr(obj, "device", None)
        index = -1  # keeps the current device
        if tensor_device is not None and tensor_device.type == simulated.vendor.name:
            index = tensor_device.index
        super().__init__(index)


def get_device_name(device: Any = None) -> str:
    return simulated.name()


def get_device_capability(device: Any = None) -> tuple[int, int]:
    properties = get_device_properties(_get_device_index(device, optional=True))
    return properties.major, properties.minor


def get_device_properties(device: Any = None) -> Any:
    index = _get_device_index(device, optional=True)
    if not 0 <= index < simulated.count:
        raise AssertionError("Invalid device id")  # torch.cuda's error
    return SimpleNamespace(
        name=simulated.name(),
        total_memory=simulated.memory_sizes[index],
        major=9,
        minor=0,
        multi_processor_count=1,
    )


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    return _get_device_index(device) != _get_device_index(peer_device)
