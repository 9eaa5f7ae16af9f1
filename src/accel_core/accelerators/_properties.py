"""A vendor's own device properties as our frozen record: vendors agree on names only in part."""

from __future__ import annotations

from accel_core.accelerators.records import DeviceProperties

__all__ = ["read_properties"]

#: What the device schedules on: CUDA and those who follow it, SYCL, Ascend.
_MULTIPROCESSORS = ("multi_processor_count", "max_compute_units", "cube_core_num")
#: CUDA says 0 or 1, SYCL False or True.
_INTEGRATED = ("is_integrated", "is_integrated_gpu")


def read_properties(properties: object, total_memory: int | None) -> DeviceProperties:
    """The record of what `torch.<device_type>.get_device_properties` gave."""
    uuid = getattr(properties, "uuid", None)
    integrated = _int(properties, *_INTEGRATED)
    return DeviceProperties(
        name=str(getattr(properties, "name", "")),
        total_memory=total_memory,
        capability=_capability(properties),
        uuid=None if uuid is None else str(uuid),
        pci_address=_pci_address(properties),
        multiprocessors=_int(properties, *_MULTIPROCESSORS),
        integrated=None if integrated is None else bool(integrated),
    )


def _int(properties: object, *names: str) -> int | None:
    """The first of the fields that is there and a number."""
    values = (getattr(properties, name, None) for name in names)
    return next((int(value) for value in values if isinstance(value, int)), None)


def _capability(properties: object) -> tuple[int, int] | None:
    major, minor = _int(properties, "major"), _int(properties, "minor")
    return None if major is None or minor is None else (major, minor)


def _pci_address(properties: object) -> str | None:
    domain, bus, device = (_int(properties, f"pci_{part}_id") for part in ("domain", "bus", "device"))
    return None if bus is None or device is None else f"{domain or 0:04x}:{bus:02x}:{device:02x}.0"
