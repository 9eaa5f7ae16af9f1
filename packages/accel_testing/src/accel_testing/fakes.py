"""Fake backends: an accelerator with a name of its own, on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accel_core import Backend
from accel_core.errors import InvalidArgumentError, InvalidBackendError
from accel_core.text import short_repr
from accel_testing.faults import Fault

__all__ = ["Fake", "fake"]

#: Fields of the declaration that `fake` sets itself.
_FIELDS_OF_FAKE = ("device_type", "vendor_import", "accelerator", "provenance")
#: Above every first-party plugin's, so that it is chosen wherever it works.
_HIGHEST_PRIORITY = 950


@dataclass(frozen=True)
class Fake:
    """A backend for `installed`; `fake` makes it."""

    backend: Backend
    devices: int
    faults: tuple[Fault, ...]

    @property
    def vendor_import(self) -> str:
        """Return the name of the package that replaces the vendor's."""
        return self.backend.vendor_imports[0]


def fake(name: str, *faults: Fault, devices: int = 1, **fields: Any) -> Fake:
    """Return a backend `name` with `devices` devices, each of which is the CPU.

    Its accelerator is a `FakeAccelerator`: it computes, claims to be an accelerator, and records calls.
    `faults` occur in it. It has the highest rank. `fields` are other fields of its declaration
    (`priority=10`), as for `Backend`. With `devices=0` it is not usable.

    Raises `InvalidBackendError` for an invalid value of a field, for fields that `fake` itself sets, and for
    a number of devices below 0. Raises `InvalidArgumentError` for a fault that is not a `Fault`.
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
            f"fake({short_repr(name)}): {', '.join(reserved)} given, expected other fields of Backend, "
            "because fake() sets these. For a device with a type of its own, simulate one: "
            "accel simulate acme:2."
        )
    declared: dict[str, Any] = {
        "priority": _HIGHEST_PRIORITY,
        "description": "a fake of accel_testing: the CPU under another name",
        "communication_backend": "gloo",
        **fields,
    }
    stem = str(name).replace(".", "_")
    backend = Backend(
        name=name, device_type="cpu", vendor_import=f"fake_{stem}_vendor", **declared
    )
    return Fake(backend, devices, faults)
