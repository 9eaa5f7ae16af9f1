"""Facts about the machine for reports and figures: its CPU, its caches, its devices' drivers.

Every function takes `root`, the folder that contains `/sys` and `/proc`.
"""

from __future__ import annotations

import os
import platform

from accel_core import hardware

__all__ = ["cpu_name", "driver_of", "last_level_cache"]


def cpu_name(root: str = "/") -> str:
    """Return the CPU's model name, `"AMD EPYC 9654 96-Core Processor"`; empty if unknown."""
    for line in hardware.read_text("/proc/cpuinfo", root).splitlines():
        key, colon, value = line.partition(":")
        # x86 has "model name", some Arm kernels "Model".
        if colon and key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


_CORES = "/sys/devices/system/cpu"
#: Units of a cache's size in the kernel's files, `32768K`: Documentation/ABI/testing/sysfs-devices-system-cpu
_CACHE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def last_level_cache(root: str = "/") -> int | None:
    """Return the total bytes of the last-level caches of this process's cores; `None` if unknown."""
    cores = hardware.allowed_cores()
    if cores is None:
        cores = frozenset(range(os.cpu_count() or 1))
    #: Sizes by level, and by the cores that share a cache: each of them shows the same one.
    sizes: dict[int, dict[str, int]] = {}
    for core in sorted(cores):
        for name in hardware.names_in(f"{_CORES}/cpu{core}/cache", root):
            folder = f"{_CORES}/cpu{core}/cache/{name}"
            level = hardware.parse_number(hardware.read_text(f"{folder}/level", root))
            size = _cache_size(hardware.read_text(f"{folder}/size", root))
            if level is not None and size is not None:
                shared_by = hardware.read_text(f"{folder}/shared_cpu_list", root)
                sizes.setdefault(level, {})[shared_by or str(core)] = size
    if not sizes:
        return None
    return sum(sizes[max(sizes)].values())


def _cache_size(text: str) -> int | None:
    """Return the bytes of a size such as `32768K`; `None` if it is malformed."""
    number, unit = hardware.parse_number(text[:-1]), _CACHE_UNITS.get(text[-1:])
    if number is None or unit is None:
        return None
    return number * unit


def driver_of(pci_address: str | None, root: str = "/") -> str:
    """Return the kernel driver of the PCI device, `"nvidia 550.54.15"`; empty if it has none.

    The version is left out for a driver that comes with the kernel, whose version is the kernel's.
    """
    if not pci_address:
        return ""
    device = f"/sys/bus/pci/devices/{pci_address.lower()}"
    name = ""
    # Not from the target of the link `driver`, because `root` may be a copy of the files.
    for line in hardware.read_text(f"{device}/uevent", root).splitlines():
        key, _, value = line.partition("=")
        if key == "DRIVER":
            name = value
            break
    version = hardware.read_text(f"{device}/driver/module/version", root)
    return f"{name} {version}".strip()
