"""The machine on which torch is to be installed.

All files are read below the folder `Machine.root`, which is `/` except in tests.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from typing import NamedTuple

from accel_core import hardware
from accel_core.hardware import bus, vendors

__all__ = [
    "ALPINE",
    "MACOS",
    "WINDOWS_DRIVERS",
    "WSL_DRIVERS",
    "Machine",
    "driver_version",
    "here",
    "unknown_devices",
]

#: The PCI classes of possible accelerators, 3D controller and processing accelerator (pci.ids).
_ACCELERATOR_CLASSES = ("0302", "1200")
_NVIDIA_VERSION = r"\b[0-9]{3,}\.[0-9]+(\.[0-9]+)?\b"
#: The file with the version of macOS, and a file that only Alpine Linux has.
MACOS = "/System/Library/CoreServices/SystemVersion.plist"
ALPINE = "/etc/alpine-release"
#: The folders with Windows drivers in WSL2 and on Windows. They contain folders such as
#: `nv_dispi.inf_amd64_0f6f1c6d7b1b` and `iigd_dch.inf_…`.
WSL_DRIVERS = "/usr/lib/wsl/drivers"
WINDOWS_DRIVERS = "/Windows/System32/DriverStore/FileRepository"
_WSL_NVIDIA_SMI = "/usr/lib/wsl/lib/nvidia-smi"
#: A line for a GPU in the output of `nvidia-smi`: the driver's version, then the PCI ids, with the device
#: id before the vendor id.
_GPU_LINE = r"(?im)^[0-9]{3,}\.[0-9]+(\.[0-9]+)?(, *0x[0-9a-f]{4}10de)?"
#: The time limit for `nvidia-smi` in seconds.
_NVIDIA_SMI_SECONDS = 5.0


class Machine(NamedTuple):
    """A machine on which torch is to be installed, and the folder that contains its files."""

    #: The folder that contains the machine's `/sys`, `/dev` and `/proc`.
    root: str
    #: The value of `sys.platform`, such as `"linux"`, `"darwin"` or `"win32"`.
    system: str
    #: The value of `platform.machine()`, such as `"x86_64"`, `"aarch64"` or `"arm64"`.
    architecture: str
    #: The Python version for which torch is to be installed, such as `"3.11"`.
    python: str
    #: The output of `nvidia-smi` with the driver's version and the GPUs, such as `"560.94, 0x268410DE"`, or
    #: an empty string if a file contains the driver's version.
    nvidia_smi: str = ""
    #: The version of the GNU C library, such as `"2.35"`, or an empty string if the system uses a different
    #: C library, or if the version is unknown.
    glibc: str = ""

    def text(self, path: str) -> str:
        """Return the text of one of the machine's files, or an empty string if the file is missing."""
        return hardware.read_text(path, self.root).replace("\0", "").strip()


def here(python: str = "", root: str = "/") -> Machine:
    """Describe the machine on which this process runs.

    `python` is the Python version for which torch is to be installed. An empty string means the running
    Python. `root` is the folder that contains the machine's files.
    """
    running_python = f"{sys.version_info.major}.{sys.version_info.minor}"
    library, release = platform.libc_ver()
    glibc = release if library == "glibc" else ""
    return Machine(
        root=root,
        system=sys.platform,
        architecture=platform.machine(),
        python=python or running_python,
        nvidia_smi=_query_nvidia_smi(root),
        glibc=glibc,
    )


def driver_version(root: str = "/") -> str:
    """Return the version of the machine's NVIDIA kernel driver, such as `"550.54.15"`.

    Returns an empty string if no file contains the version.
    """
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        version = re.search(_NVIDIA_VERSION, hardware.read_text(path, root))
        if version:
            return version[0]
    return ""


def unknown_devices(machine: Machine) -> tuple[bus.PciDevice, ...]:
    """Return the PCI devices that may be accelerators but match no known vendor's accelerators."""
    if machine.system != "linux":
        return ()
    known_patterns: list[str] = []
    for vendor in vendors.VENDORS:
        known_patterns += vendor.pci
    unknown = []
    for device in bus.pci_devices(machine.root):
        may_be_accelerator = device.class_code.startswith(_ACCELERATOR_CLASSES)
        if may_be_accelerator and not bus.matches_pci(device, known_patterns):
            unknown.append(device)
    return tuple(unknown)


def _query_nvidia_smi(root: str) -> str:
    """Return the output of `nvidia-smi` on Windows and in WSL2, if no file contains the driver's version.

    The string is empty otherwise, or if `nvidia-smi` fails.
    """
    in_wsl = "microsoft" in hardware.read_text("/proc/version", root).lower()
    is_needed = in_wsl or sys.platform == "win32"
    if not is_needed or driver_version(root):
        return ""
    program = shutil.which("nvidia-smi")
    if program is None and in_wsl:
        program = shutil.which(_WSL_NVIDIA_SMI)
    if program is None:
        return ""
    query = "--query-gpu=driver_version,pci.device_id"
    try:
        completed = subprocess.run(
            [program, query, "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_NVIDIA_SMI_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if completed.returncode:
        return ""
    output = completed.stdout.decode(errors="replace")
    gpu_lines = [match[0] for match in re.finditer(_GPU_LINE, output)]
    return "\n".join(gpu_lines)
