"""Facts about the machine for reports and benchmarks: its CPU, caches, device drivers and loopback interface.

The functions that read files take `root`, the folder that contains `/sys` and `/proc`.
"""

from __future__ import annotations

import os
import platform
import socket
import struct
import sys

from accel_core import hardware

__all__ = ["cpu_name", "driver_of", "is_loopback_down", "last_level_cache"]

#: The request SIOCGIFFLAGS and the flag IFF_UP of netdevice(7).
_GET_INTERFACE_FLAGS, _IS_UP = 0x8913, 1


def cpu_name(root: str = "/") -> str:
    """Return the CPU's model name, such as `"AMD EPYC 9654 96-Core Processor"`.

    Returns an empty string if the model is unknown.
    """
    for line in hardware.read_text("/proc/cpuinfo", root).splitlines():
        key, colon, value = line.partition(":")
        # The key is "model name" on x86 and "Model" on some Arm kernels.
        if colon and key.strip() in ("model name", "Model"):
            return value.strip()
    return platform.processor() or platform.machine()


_CORES = "/sys/devices/system/cpu"
#: Unit suffixes of cache sizes such as `32768K` in the kernel's files, described in
#: Documentation/ABI/testing/sysfs-devices-system-cpu.
_CACHE_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


def last_level_cache(root: str = "/") -> int | None:
    """Return the total size in bytes of the last-level caches that this process's cores use.

    Returns `None` if the size is unknown.
    """
    cores = hardware.allowed_cores()
    if cores is None:
        cores = frozenset(range(os.cpu_count() or 1))
    # For each level, the sizes of the caches by the cores that share a cache. Each of these cores
    # lists the cache, which must be counted once.
    sizes_by_level: dict[int, dict[str, int]] = {}
    for core in sorted(cores):
        for name in hardware.names_in(f"{_CORES}/cpu{core}/cache", root):
            folder = f"{_CORES}/cpu{core}/cache/{name}"
            level = hardware.parse_number(hardware.read_text(f"{folder}/level", root))
            size = _parse_cache_size(hardware.read_text(f"{folder}/size", root))
            if level is not None and size is not None:
                shared_by = hardware.read_text(f"{folder}/shared_cpu_list", root)
                sizes_by_cores = sizes_by_level.setdefault(level, {})
                sizes_by_cores[shared_by or str(core)] = size
    if not sizes_by_level:
        return None
    last_level = max(sizes_by_level)
    return sum(sizes_by_level[last_level].values())


def _parse_cache_size(text: str) -> int | None:
    """Convert a size such as `32768K` to bytes, or return `None` if the text is malformed."""
    number = hardware.parse_number(text[:-1])
    bytes_per_unit = _CACHE_UNITS.get(text[-1:])
    if number is None or bytes_per_unit is None:
        return None
    return number * bytes_per_unit


def driver_of(pci_address: str | None, root: str = "/") -> str:
    """Return the name and version of a PCI device's kernel driver, such as `"nvidia 550.54.15"`.

    Returns an empty string if the device has no driver. The version is missing for a driver that is part of
    the kernel, because such a driver has the kernel's version.
    """
    if not pci_address:
        return ""
    device = f"/sys/bus/pci/devices/{pci_address.lower()}"
    name = ""
    # The link `driver` is not followed, because `root` may be a copy without valid links.
    for line in hardware.read_text(f"{device}/uevent", root).splitlines():
        key, _, value = line.partition("=")
        if key == "DRIVER":
            name = value
            break
    version = hardware.read_text(f"{device}/driver/module/version", root)
    return f"{name} {version}".strip()


def is_loopback_down() -> bool:
    """Return whether the network interface `lo` exists and is not up (Linux).

    The files in /sys describe the network namespace in which /sys was mounted, so the kernel is asked.
    """
    if sys.platform != "linux":
        return False
    import fcntl

    request = struct.pack("16sH14x", b"lo", 0)  # struct ifreq of netdevice(7)
    try:
        with socket.socket() as any_socket:
            response = fcntl.ioctl(any_socket, _GET_INTERFACE_FLAGS, request)
    except OSError:  # There is no such interface.
        return False
    _name, flags = struct.unpack("16sH14x", response)
    return not flags & _IS_UP
