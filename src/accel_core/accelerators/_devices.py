"""Section of the interface: the nature of the device, and devices by index."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any

from accel_core.accelerators._base import Base
from accel_core.errors import UnsupportedError

if TYPE_CHECKING:
    import torch

    from accel_core.accelerators.records import DeviceProperties

__all__ = ["Devices"]


class _DeviceGuard:
    """Selects a device between `__enter__` and `__exit__`, for vendors without such a class."""

    __slots__ = ("_accelerator", "_before", "_index")

    def __init__(self, accelerator: Devices, index: int) -> None:
        self._accelerator = accelerator
        self._index = index
        self._before = index

    def __enter__(self) -> None:
        self._before = self._accelerator.current_device()
        if self._before != self._index:
            self._accelerator.set_device(self._index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before != self._index:
            self._accelerator.set_device(self._before)


class Devices(Base):
    """Nature of the device, and devices by index.

    A subclass gives `device_count`, `current_device` and `_select`; the rest follows from them.
    """

    #: Whether `range_push` and `range_pop` take an NVTX domain.
    supports_nvtx_domain: bool = False

    # Nature

    def is_synchronized_device(self) -> bool:
        """Whether kernels have finished when the call that started them returns."""
        return False

    def use_host_timers(self) -> bool:
        """Whether the host's clock is right for timing work; otherwise use `Event`."""
        return self.is_synchronized_device()

    def resolves_data_dependency(self) -> bool:
        """Whether the device orders dependent work across streams without being told."""
        return self.is_synchronized_device()

    def handles_memory_backpressure(self) -> bool:
        """Whether an allocation waits for memory to become free rather than failing."""
        return self.is_synchronized_device()

    def is_available(self) -> bool:
        """Whether at least one device can be used; never raises."""
        try:
            return self.device_count() > 0
        except Exception:
            return False

    def is_initialized(self) -> bool:
        """Whether the vendor's runtime has started in this process.

        A device that has no separate start counts as started when it is available.
        """
        return self.is_available()

    # Devices

    def device_name(self, device_index: int | None = None) -> str:
        """The name in torch: `"npu"` without an index, `"npu:1"` with one."""
        return self._names[device_index]

    def device(self, device_index: int | None = None) -> torch.device:
        """The `torch.device` of that index; without an index it means torch's current device.

        It is a value, not a guard: use `device_guard` to select a device for a while.
        """
        device: torch.device = self._devices[device_index]
        return device

    def device_guard(self, device_index: int | None) -> AbstractContextManager[Any]:
        """A context manager that selects the device, then restores the one before.

        `None` changes nothing. Raises `ValueError` when the index is out of range.
        """
        if device_index is None:
            return nullcontext()
        return _DeviceGuard(self, self._checked_index(device_index))

    def set_device(self, device_index: int) -> None:
        """Select the current device of this thread. Raises `ValueError` when out of range."""
        self._select(self._checked_index(device_index))

    def _select(self, index: int) -> None:
        """Make `index`, known to be in range, the current device. One device needs no selecting."""
        if self.device_count() > 1:
            raise self._unsupported("set_device")

    def current_device(self) -> int:
        """Index of the current device of this thread."""
        raise self._unsupported("current_device")

    def current_device_name(self) -> str:
        """The current device's name in torch: `"npu:1"`."""
        return self._names[self.current_device()]

    def device_count(self) -> int:
        """How many devices this process sees: 0 or more."""
        raise self._unsupported("device_count")

    def synchronize(self, device_index: int | None = None) -> None:
        """Wait until all work queued on the device has finished.

        The default suits a device whose calls return when the work is done; others override it.
        """
        if not self.is_synchronized_device():
            raise self._unsupported("synchronize")

    def device_properties(self, device_index: int | None = None) -> DeviceProperties:
        """What the vendor says of the device, as a frozen record. Raises `ValueError` out of range."""
        from accel_core.accelerators.records import DeviceProperties

        index = self._index(device_index)
        return DeviceProperties(name=self.device_name(index), total_memory=self._total_memory_or_none(index))

    def device_uuid(self, device_index: int | None = None) -> str | None:
        """The device's UUID as the vendor writes it; `None` where the vendor gives none."""
        return self.device_properties(device_index).uuid

    def visible_device_ids(self) -> tuple[int | str, ...] | None:
        """What the visible-devices variable lists, as the vendor's runtime reads it; `None` for all devices.

        The ids are the vendor's own (indices, module ids, UUIDs), from this process's environment. Raises
        `SettingError` for a value that the runtime refuses too.
        """
        from accel_core.machine.visible_devices import parse_visible_devices

        for variable in self.visible_devices_envs():
            if (value := os.environ.get(variable)) is not None:
                return parse_visible_devices(self.backend.visible_devices_grammar, value).ids
        return None

    def visible_devices_envs(self) -> list[str]:
        """Names of the vendor's visible-devices variables, the one that wins first."""
        return list(self.backend.visible_devices)

    def total_memory(self, device_index: int | None = None) -> int:
        """Bytes of memory of the device."""
        raise self._unsupported("total_memory")

    def _total_memory_or_none(self, index: int) -> int | None:
        try:
            return self.total_memory(index)
        except UnsupportedError:
            return None

    def _index(self, device_index: int | None) -> int:
        """The index that is meant, which is the current one for `None`."""
        return self.current_device() if device_index is None else self._checked_index(device_index)

    def _checked_index(self, device_index: Any) -> int:
        """The index as `int`, from an index or a `torch.device`. Raises `ValueError` out of range."""
        if isinstance(device_index, self._torch.device):
            if device_index.type != self._device_type:
                raise ValueError(f"{self.name}: {device_index} is not a device of type {self._device_type!r}")
            if device_index.index is None:
                return self.current_device()
            device_index = device_index.index
        index, count = int(device_index), self.device_count()
        if not 0 <= index < count:
            raise ValueError(
                f"{self.name}: device index {index} is out of range, "
                f"{count or 'no'} device{'' if count == 1 else 's'} visible"
            )
        return index
