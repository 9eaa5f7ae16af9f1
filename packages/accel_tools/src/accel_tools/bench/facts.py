"""Collect facts about the machine, the software and the device that affect measurements."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from accel_core import DeviceProperties, hardware
from accel_core.errors import BackendUnavailableError
from accel_core.exceptions import PLUGIN_ERRORS, root_cause
from accel_core.torch_import import import_torch
from accel_tools.machine import cpu_name, driver_of, last_level_cache

if TYPE_CHECKING:
    from accel_core import Accelerator

__all__ = ["device_facts", "machine_facts"]


def machine_facts() -> dict[str, Any]:
    """Return facts about the CPU, its cores, memory, the operating system, Python and torch.

    Sizes are in bytes.
    """
    import psutil

    torch = import_torch()
    return {
        "cpu": cpu_name(),
        "cores": hardware.usable_cores(),
        "last_level_cache": last_level_cache(),
        "memory": int(psutil.virtual_memory().total),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_threads": int(torch.get_num_threads()),
        # The mean number of processes that ran or waited for a core in the last minute.
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def device_facts(accelerator: Accelerator) -> dict[str, Any]:
    """Return facts about the backend, its devices, and the current device's driver.

    The driver is `None` if it is unknown. Raises `BackendUnavailableError` if the backend has no device, or
    if it cannot list its devices.
    """
    source, name = accelerator.backend.provenance, accelerator.name
    try:
        count = accelerator.device_count()
        device = accelerator.current_device_name() if count else ""
    except PLUGIN_ERRORS as error:
        raise BackendUnavailableError(
            f"{name} cannot list its devices: {root_cause(error)}. Next step: accel info {name}"
        ) from error
    if not count:
        raise BackendUnavailableError(
            f"{name} has no device on this machine, so there is nothing to measure. Next step: "
            f"accel why {name}, or accel list for other backends"
        )
    try:
        properties = accelerator.device_properties()
    except PLUGIN_ERRORS:
        # The measurements may succeed without the properties.
        properties = DeviceProperties(name="")
    return {
        "name": name,
        "distribution": source.distribution if source else "",
        "version": source.version if source else "",
        "device": device,
        "product": properties.name,
        "devices": count,
        "driver": driver_of(properties.pci_address) or None,
    }
