"""Facts that affect the figures: the machine, the software, the device."""

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
    """Return the CPU, its cores and memory, the system, Python, torch and its threads."""
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
        #: Processes that ran or waited in the last minute, on average: other load of the cores.
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def device_facts(accelerator: Accelerator) -> dict[str, Any]:
    """Return the backend, the current device, the number of devices, and the device's driver if known.

    Raises `BackendUnavailableError` if there is no device, or if the device does not respond.
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
            f"{name} has no device here, so there is nothing to measure. Next step: "
            f"accel why {name}, or accel list for other backends"
        )
    try:
        properties = accelerator.device_properties()
    except (
        PLUGIN_ERRORS
    ):  # of less weight than the measurements, which may well succeed
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
