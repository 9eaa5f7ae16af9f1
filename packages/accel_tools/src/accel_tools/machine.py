"""Facts about the machine for reports and figures: its processor, its caches, its devices' drivers.

Every function takes `root`, the folder that contains `/sys` and `/proc`.
"""

from __future__ import annotations

import os

from accel_core import hardware

__all__ = ["driver_of", "last_level_cache", "processor_name"]


def processor_name(root: str = "/") -> str:
    """Return the CPU's own name, `"AMD EPYC 9654 96-Core Processor"`; empty if it is not known."""
    for line in hardware.read_text("/proc/cpuinfo", root).splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() in (
            "model name",
            "Model",
        ):  # x86; some of Arm's kernels
            return value.strip()
    import platform

    return platform.processor() or platform.machine()


_CORES = "/sys/devices/system/cpu"
#: As the kernel writes the size of a cache: `32768K`. Documentation/ABI/testing/sysfs-devices-system-cpu
_CACHE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def last_level_cache(root: str = "/") -> int | None:
    """Return the total bytes of the last-level caches of this process's cores; `None` if not known."""
    allowed = hardware.allowed_cores()
    caches: dict[int, dict[str, int]] = {}
    for core in sorted(allowed if allowed is not None else range(os.cpu_count() or 1)):
        for name in hardware.names_in(f"{_CORES}/cpu{core}/cache", root):
            folder = f"{_CORES}/cpu{core}/cache/{name}"
            level, size = (
                hardware.parse_number(hardware.read_text(f"{folder}/level", root)),
                hardware.read_text(f"{folder}/size", root),
            )
            amount, unit = hardware.parse_number(size[:-1]), _CACHE_UNITS.get(size[-1:])
            if level is not None and amount is not None and unit is not None:
                # By the cores that share it: each of them shows the same cache.
                shared = hardware.read_text(f"{folder}/shared_cpu_list", root)
                caches.setdefault(level, {})[shared or str(core)] = amount * unit
    return sum(caches[max(caches)].values()) if caches else None


def driver_of(pci_address: str | None, root: str = "/") -> str:
    """Return the kernel's driver of the PCI device, `"nvidia 550.54.15"`; empty if the kernel names none.

    The version is left out for a driver that comes with the kernel, whose version is the kernel's.
    """
    if not pci_address:
        return ""
    device = f"/sys/bus/pci/devices/{pci_address.lower()}"
    # The link's target would be the name; read so, as `root` may be a folder of any machine's files.
    uevent = hardware.read_text(f"{device}/uevent", root).splitlines()
    name = next(
        (line.partition("=")[2] for line in uevent if line.startswith("DRIVER=")), ""
    )
    return (
        f"{name} {hardware.read_text(f'{device}/driver/module/version', root)}".strip()
    )
