"""Fake backends: accelerators that have their own names but run on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accel_core import Backend
from accel_core.errors import InvalidArgumentError, InvalidBackendError
from accel_core.text import short_repr
from accel_testing.faults import Fault

__all__ = ["Fake", "fake"]

#: The fields of the declaration that `fake` sets itself, and that callers cannot pass.
_FIELDS_OF_FAKE = ("device_type", "vendor_import", "accelerator", "provenance")
#: A priority higher than that of every first-party plugin, so that a usable fake is always chosen.
_HIGHEST_PRIORITY = 950


@dataclass(frozen=True)
class Fake:
    """A fake backend, created by `fake` and passed to `installed`."""

    backend: Backend
    devices: int
    faults: tuple[Fault, ...]

    @property
    def vendor_import(self) -> str:
        """Return the name of the generated package that stands in for the vendor's package."""
        return self.backend.vendor_imports[0]


def fake(name: str, *faults: Fault, devices: int = 1, **fields: Any) -> Fake:
    """Return a fake backend named `name` with `devices` devices, each of which is the CPU.

    The backend's accelerator is a `FakeAccelerator`, which computes on the CPU, claims to be an accelerator,
    and records the calls to its methods. By default, the backend's priority is higher than that of every
    first-party plugin. With `devices=0`, the backend is not usable. `faults` are injected into the backend.
    `fields` are additional fields of the declaration, such as `priority=10` (see `Backend`).

    Raises `InvalidBackendError` if a field has an invalid value or is one that `fake` sets itself, or if
    `devices` is not a number of at least 0. Raises `InvalidArgumentError` if a fault is not a `Fault`.
    """
    if type(devices) is not int or devices < 0:
        raise InvalidBackendError(
            f"fake({short_repr(name)}, devices={devices!r}): expected a whole number of devices, "
            "0 or more. Write devices=2."
        )
    for fault in faults:
        if not isinstance(fault, Fault):
            raise InvalidArgumentError(
                f"fake({short_repr(name)}): {fault!r} ({type(fault).__name__}) is not a fault, expected "
                "accel_testing.Fault. Write Fault('synchronize', raises=RuntimeError('lost'))."
            )
    reserved = [field for field in _FIELDS_OF_FAKE if field in fields]
    if reserved:
        raise InvalidBackendError(
            f"fake({short_repr(name)}): {', '.join(reserved)} cannot be given, because fake() sets "
            "these fields. For a device with its own device type, simulate a device: "
            "accel simulate acme:2."
        )
    declared: dict[str, Any] = {
        "priority": _HIGHEST_PRIORITY,
        "description": "a fake backend for tests: the CPU under another name",
        "communication_backend": "gloo",
        **fields,
    }
    stem = str(name).replace(".", "_")
    backend = Backend(
        name=name, device_type="cpu", vendor_import=f"fake_{stem}_vendor", **declared
    )
    return Fake(backend, devices, faults)
