"""Facts about the machine that reports and figures name: its processor, its caches, its devices' drivers.

Every function takes `root`, the folder under which `/sys` and `/proc` are looked for.
"""

from __future__ import annotations

import os

from accel_core.toolkit import host

__all__ = ["driver_of", "last_level_cache", "processor_name"]


def processor_name(root: str = "/") -> str:
    """The processor as it calls itself, `"AMD EPYC 9654 96-Core Processor"`; empty where nothing says it."""
    for line in host.read_text("/proc/cpuinfo", root).splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() in ("model name", "Model"):  # x86; some of Arm's kernels
            return value.strip()
    import platform

    return platform.processor() or platform.machine()


_CORES = "/sys/devices/system/cpu"
#: As the kernel writes the size of a cache: `32768K`. Documentation/ABI/testing/sysfs-devices-system-cpu
_CACHE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def last_level_cache(root: str = "/") -> int | None:
    """Bytes of the last-level caches of the cores that this process may use, added up; `None`: not known."""
    allowed = host.allowed_cores()
    caches: dict[int, dict[str, int]] = {}
    for core in sorted(allowed if allowed is not None else range(os.cpu_count() or 1)):
        for name in host.names_in(f"{_CORES}/cpu{core}/cache", root):
            folder = f"{_CORES}/cpu{core}/cache/{name}"
            level, size = (
                host.parse_number(host.read_text(f"{folder}/level", root)),
                host.read_text(f"{folder}/size", root),
            )
            amount, unit = host.parse_number(size[:-1]), _CACHE_UNITS.get(size[-1:])
            if level is not None and amount is not None and unit is not None:
                # By the cores that share it: each of them shows the same cache.
                shared = host.read_text(f"{folder}/shared_cpu_list", root)
                caches.setdefault(level, {})[shared or str(core)] = amount * unit
    return sum(caches[max(caches)].values()) if caches else None


def driver_of(pci_address: str | None, root: str = "/") -> str:
    """The kernel's driver of the PCI device, `"nvidia 550.54.15"`; empty where the kernel names none.

    Without a version for a driver that comes with the kernel, which has that of the kernel itself.
    """
    if not pci_address:
        return ""
    device = f"/sys/bus/pci/devices/{pci_address.lower()}"
    # The link's target would be the name; read so, as `root` may be a folder of any machine's files.
    uevent = host.read_text(f"{device}/uevent", root).splitlines()
    name = next((line.partition("=")[2] for line in uevent if line.startswith("DRIVER=")), "")
    return f"{name} {host.read_text(f'{device}/driver/module/version', root)}".strip()
