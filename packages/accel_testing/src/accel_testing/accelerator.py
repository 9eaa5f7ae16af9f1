"""`FakeAccelerator`: the CPU under a different name, which records calls to its methods."""

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
    """A recorded call from outside accel's own packages to a method of a fake accelerator."""

    member: str
    arguments: tuple[object, ...]
    named: dict[str, object]


def _return_false() -> bool:
    return False


class FakeAccelerator(CPUAccelerator):
    """A fake accelerator whose devices, if any, are all the CPU. Use `fake` to declare it.

    A fake claims to be an accelerator, has its own name and number of devices, and rejects an index beyond
    its last device. In all other respects it behaves like the CPU. Its torch device type is `"cpu"`, its
    tensors are created and computed on the CPU, and its memory statistics are those of this process. The name
    in `device_properties` contains "a fake".

    `calls` lists all calls to its methods in order, including failed calls but not calls from accel's own
    packages. `calls.clear()` empties the list. While torch.compile traces a function, no calls are recorded
    and no faults are injected.
    """

    def __init__(
        self, backend: Backend, devices: int = 1, faults: Faults | None = None
    ) -> None:
        self._faults = faults or Faults()
        self._faults.trigger("construction")
        super().__init__(backend)
        self._count = devices
        self.calls: list[Call] = []
        # In this object, a wrapper hides each public method of the class.
        for name in dir(type(self)):
            function = inspect.getattr_static(type(self), name)
            is_public = not name.startswith("_")
            if is_public and inspect.isfunction(function):
                setattr(
                    self, name, self._wrap_to_record_calls(name, getattr(self, name))
                )

    def _wrap_to_record_calls(
        self, name: str, method: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return a wrapper of `method` that adds each call to `calls` and triggers faults that are due."""
        # A torch without `torch.compiler.is_compiling` does not trace functions.
        compiler = getattr(self._torch, "compiler", None)
        is_compiling = getattr(compiler, "is_compiling", _return_false)

        @functools.wraps(method)
        def recorded_method(*arguments: Any, **named: Any) -> Any:
            if is_compiling():
                return method(*arguments, **named)
            caller_module = str(sys._getframe(1).f_globals.get("__name__"))
            caller_package, _, _ = caller_module.partition(".")
            if caller_package not in OWN_MODULES:
                self.calls.append(Call(name, arguments, named))
            fault = self._faults.trigger(name)
            if fault is not None:
                return fault.returns
            return method(*arguments, **named)

        return recorded_method

    def is_accelerator(self) -> bool:
        """Return True, even though the fake accelerator's devices are the CPU."""
        return True

    def is_available(self) -> bool:
        """Return whether the fake accelerator has at least one device. Never raises an error."""
        return Accelerator.is_available(self)

    def device_count(self) -> int:
        """Return the number of devices that was passed to `fake`."""
        return self._count

    def current_device(self) -> int:
        """Return the device index selected in this thread.

        If no device has been selected, the index is `LOCAL_RANK` modulo the number of devices. Raises
        `InvalidDeviceError` if the accelerator has no devices.
        """
        if not self._count:
            raise InvalidDeviceError(
                f"the fake accelerator {self.name} has no devices. Write devices=1."
            )
        return super().current_device()

    def _check_range(self, index: int) -> None:
        Accelerator._check_range(self, index)

    def device_properties(
        self, device_index: Device = None, device: Device = None
    ) -> DeviceProperties:
        """Return the CPU's properties under a name that contains "a fake"."""
        cpu_properties = super().device_properties(device_index, device)
        return replace(
            cpu_properties, name=f"{self.name} (a fake: {cpu_properties.name})"
        )
