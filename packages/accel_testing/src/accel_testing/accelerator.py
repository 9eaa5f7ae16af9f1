"""`FakeAccelerator`: the CPU under another name, which records who calls what."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from accel_core import Accelerator
from accel_core.errors import InvalidDeviceError
from accel_core.exceptions import OWN_MODULES
from accel_core.interface.cpu import CPUAccelerator
from accel_testing.faults import Faults

if TYPE_CHECKING:
    from torch.types import Device

    from accel_core import Backend, DeviceProperties

__all__ = ["Call", "FakeAccelerator"]


class Call(NamedTuple):
    """One call of a member by other code than accel-core itself."""

    member: str
    arguments: tuple[object, ...]
    named: dict[str, object]


class FakeAccelerator(CPUAccelerator):
    """An accelerator with several devices, all of which are the CPU; `fake` declares it.

    It claims to be an accelerator, and has its own name and number of devices; it rejects an index beyond
    them. Everything else is the CPU's: torch's device type is `"cpu"`, tensors and computation are there, and
    amounts of memory are this process's. `device_properties` says that it is a fake.

    `calls` has each call of a member, except accel-core's own calls, in order, successful or not;
    `calls.clear()` empties it. In a function that torch.compile traces, no call is recorded and no fault
    occurs.
    """

    def __init__(
        self, backend: Backend, devices: int = 1, faults: Faults | None = None
    ) -> None:
        self._faults = faults or Faults()
        self._faults.trigger("construction")
        super().__init__(backend)
        self._count = devices
        self.calls: list[Call] = []
        for name in dir(type(self)):
            function = inspect.getattr_static(type(self), name)
            if name[0] != "_" and inspect.isfunction(function):
                setattr(self, name, self._recording_calls(name, getattr(self, name)))

    def _recording_calls(
        self, name: str, member: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return `member` wrapped: each call is recorded in `calls`, and triggers the faults that are due."""
        compiler = getattr(self._torch, "compiler", None)
        is_compiling = getattr(compiler, "is_compiling", bool)  # bool() is False

        @functools.wraps(member)
        def call(*arguments: Any, **named: Any) -> Any:
            if is_compiling():
                return member(*arguments, **named)
            caller = str(sys._getframe(1).f_globals.get("__name__"))
            if caller.partition(".")[0] not in OWN_MODULES:
                self.calls.append(Call(name, arguments, named))
            fault = self._faults.trigger(name)
            if fault is not None:
                return fault.returns
            return member(*arguments, **named)

        return call

    def is_accelerator(self) -> bool:
        """Return True, although it is the CPU."""
        return True

    def is_available(self) -> bool:
        """Return whether it has a device; never raises."""
        return Accelerator.is_available(self)

    def device_count(self) -> int:
        """Return the number of devices that `fake` was given."""
        return self._count

    def current_device(self) -> int:
        """Return the index selected in this thread, else `LOCAL_RANK` modulo the number of devices.

        Raises `InvalidDeviceError` if it has no device.
        """
        if not self._count:
            raise InvalidDeviceError(
                f"{self.name} (a fake) has no devices. Write devices=1."
            )
        return super().current_device()

    def _check_range(self, index: int) -> None:
        Accelerator._check_range(self, index)

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the CPU's properties, with a name that says that this is a fake."""
        cpu_properties = super().device_properties(device_index, device)
        return replace(
            cpu_properties, name=f"{self.name} (a fake: {cpu_properties.name})"
        )
