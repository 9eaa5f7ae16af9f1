"""What a figure depends on: the machine, the software, the device."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from accel_core._support.torch_import import import_torch
from accel_core.accelerators.records import DeviceProperties
from accel_core.detection.records import CAUGHT
from accel_core.machine import devices, host

if TYPE_CHECKING:
    from accel_core.accelerators.interface import Accelerator

__all__ = ["device_facts", "machine_facts"]


def machine_facts() -> dict[str, Any]:
    """The processor, its cores and memory, the system, Python, torch and its threads."""
    import psutil

    torch = import_torch()
    return {
        "cpu": host.processor_name(),
        "cores": host.usable_cores(),
        "last_level_cache": host.last_level_cache(),
        "memory": int(psutil.virtual_memory().total),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torch_threads": int(torch.get_num_threads()),
        #: Processes that ran or waited in the last minute: what else the cores had to do.
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def device_facts(accelerator: Accelerator) -> dict[str, Any]:
    """The backend, the current device, how many there are, and the device's driver where it is known."""
    source = accelerator.backend.provenance
    try:
        properties = accelerator.device_properties()
    except CAUGHT:  # the measurements will say what is wrong with the device
        properties = DeviceProperties(name="")
    return {
        "name": accelerator.name,
        "distribution": source.distribution if source else "",
        "version": source.version if source else "",
        "device": accelerator.current_device_name(),
        "product": properties.name,
        "devices": accelerator.device_count(),
        "driver": devices.driver_of(properties.pci_address) or None,
    }
