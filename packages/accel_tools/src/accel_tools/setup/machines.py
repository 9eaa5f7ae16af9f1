"""The machine that torch is to be set up on.

All files are read below a folder, `Machine.root`: `/` for this machine, and another folder in tests.
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

#: PCI classes of what may be an accelerator of a vendor that we do not know: 3D controller, processing
#: accelerator (pci.ids).
_MAY_COUNT = ("0302", "1200")
_NVIDIA_VERSION = r"\b[0-9]{3,}\.[0-9]+(\.[0-9]+)?\b"
#: The file with the version of macOS, and the one that Alpine Linux has.
MACOS = "/System/Library/CoreServices/SystemVersion.plist"
ALPINE = "/etc/alpine-release"
#: Windows' drivers in WSL2 and on Windows: `nv_dispi.inf_amd64_0f6f1c6d7b1b`, `iigd_dch.inf_…`, `u0402…`.
WSL_DRIVERS = "/usr/lib/wsl/drivers"
WINDOWS_DRIVERS = "/Windows/System32/DriverStore/FileRepository"
_WSL_NVIDIA_SMI = "/usr/lib/wsl/lib/nvidia-smi"
#: A GPU's line of its answer: the driver's version, and the GPU's PCI id, device before vendor.
_NVIDIA_SMI = r"(?im)^[0-9]{3,}\.[0-9]+(\.[0-9]+)?(, *0x[0-9a-f]{4}10de)?"
#: Seconds that `nvidia-smi` may take.
_PATIENCE = 5.0


class Machine(NamedTuple):
    """A machine, and the folder that its files are in."""

    #: The folder below which its `/sys`, `/dev` and `/proc` lie.
    root: str
    #: As `sys.platform` calls it: `"linux"`, `"darwin"`, `"win32"`.
    system: str
    #: As `platform.machine()` calls it: `"x86_64"`, `"aarch64"`, `"arm64"`.
    architecture: str
    #: The Python that torch is for: `"3.11"`.
    python: str
    #: Driver and GPUs by `nvidia-smi`, `"560.94, 0x268410DE"`; empty where a file has the driver's version.
    nvidia_smi: str = ""
    #: The version of the GNU C library, `"2.35"`; empty where there is none, or nobody knows it.
    glibc: str = ""

    def text(self, path: str) -> str:
        """Return the text of one of the machine's files; empty if it is missing."""
        return hardware.read_text(path, self.root).replace("\0", "").strip()


def here(python: str = "", root: str = "/") -> Machine:
    """Return this machine, with the Python that runs this, or another version."""
    version = python or "{}.{}".format(*sys.version_info)
    library, release = platform.libc_ver()
    glibc = release if library == "glibc" else ""
    about = {"nvidia_smi": _by_nvidia_smi(root), "glibc": glibc}
    return Machine(root, sys.platform, platform.machine(), version, **about)


def driver_version(root: str = "/") -> str:
    """Return the version of NVIDIA's kernel driver, `"550.54.15"`; empty if no file has it."""
    for path in ("/sys/module/nvidia/version", "/proc/driver/nvidia/version"):
        if found := re.search(_NVIDIA_VERSION, hardware.read_text(path, root)):
            return found[0]
    return ""


def unknown_devices(machine: Machine) -> tuple[bus.PciDevice, ...]:
    """Return PCI functions that may be accelerators, but are from no vendor that we know."""
    found = bus.pci_devices(machine.root) if machine.system == "linux" else ()
    return tuple(
        device for device in found if _may_count(device) and not _is_known(device)
    )


def _is_known(device: bus.PciDevice) -> bool:
    return bus.matches_pci(
        device, [pattern for vendor in vendors.VENDORS for pattern in vendor.pci]
    )


def _may_count(device: bus.PciDevice) -> bool:
    return device.class_code.startswith(_MAY_COUNT)


def _by_nvidia_smi(root: str) -> str:
    """Ask `nvidia-smi` on Windows and in WSL2, if no file has the driver's version; empty on any failure."""
    in_wsl = "microsoft" in hardware.read_text("/proc/version", root).lower()
    if not (in_wsl or sys.platform == "win32") or driver_version(root):
        return ""
    places = ("nvidia-smi", *([_WSL_NVIDIA_SMI] if in_wsl else []))
    program = next(filter(None, map(shutil.which, places)), None)
    if not program:
        return ""
    ask = [program, "--query-gpu=driver_version,pci.device_id", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            ask,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if done.returncode:
        return ""
    gpus = re.finditer(_NVIDIA_SMI, done.stdout.decode(errors="replace"))
    return "\n".join(gpu[0] for gpu in gpus)
