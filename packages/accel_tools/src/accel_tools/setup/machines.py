"""The machine that torch is to be set up on: this one, or one whose files were saved.

All files are read below a folder, `Machine.root`: `/` for this machine, and the folder of the saved files for
another. So the same code reads both.
"""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from accel_core import hardware
from accel_core.hardware import bus, vendors
from accel_tools.setup.archives import FILE, MachineFileError, unpacked

__all__ = [
    "ALPINE",
    "FILE",
    "MACOS",
    "WINDOWS_DRIVERS",
    "WSL_DRIVERS",
    "Machine",
    "MachineFileError",
    "driver_version",
    "here",
    "recorded",
    "saved",
    "unknown_devices",
]

_SCHEMA = 1
_BUS = "/sys/bus/pci/devices"
#: PCI classes of what may be an accelerator of a vendor that we do not know: 3D controller, processing
#: accelerator (pci.ids).
_MAY_COUNT = ("0302", "1200")
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
_GFX = r"(?m)^gfx_target_version \d+$"
_VERSION = r"\d[\d.]*\d"
_NVIDIA_VERSION = r"\b[0-9]{3,}\.[0-9]+(\.[0-9]+)?\b"
#: The file with the version of macOS, and the one that Alpine Linux has.
MACOS = "/System/Library/CoreServices/SystemVersion.plist"
ALPINE = "/etc/alpine-release"
#: Files that say what a machine is, beside the bus, the nodes and the toolkits, and what of each is saved:
#: no name of a person or a host.
_FACTS = {
    MACOS: r"<key>ProductVersion</key>\s*<string>[\d.]+",
    "/etc/nv_tegra_release": r"\A.*",
    "/proc/device-tree/model": r"\A.*",
    "/proc/driver/nvidia/version": _NVIDIA_VERSION,
    "/proc/version": r"(?i)microsoft|tegra|aarch64",
    "/sys/module/amdgpu/version": _VERSION,
    "/sys/module/nvidia/version": _VERSION,
}
#: Of these only the existence counts.
_MARKS = (ALPINE, "/usr/lib/wsl/lib/libcuda.so.1", "/sys/module/amdgpu/initstate")
#: Windows' drivers in WSL2 and on Windows: `nv_dispi.inf_amd64_0f6f1c6d7b1b`, `iigd_dch.inf_…`, `u0402…`.
WSL_DRIVERS = "/usr/lib/wsl/drivers"
WINDOWS_DRIVERS = "/Windows/System32/DriverStore/FileRepository"
_OF_GPUS = re.compile(r"(nv_disp|nvd|u0|c0|iigd_dch).*\.inf_", re.IGNORECASE)
_WSL_NVIDIA_SMI = "/usr/lib/wsl/lib/nvidia-smi"
#: A GPU's line of its answer: the driver's version, and the GPU's PCI id, device before vendor.
_NVIDIA_SMI = r"(?im)^[0-9]{3,}\.[0-9]+(\.[0-9]+)?(, *0x[0-9a-f]{4}10de)?"
#: Seconds that `nvidia-smi` may take.
_PATIENCE = 5.0


class Machine(NamedTuple):
    """One machine, and the folder that its files are in."""

    #: The folder below which its `/sys`, `/dev` and `/proc` lie.
    root: str
    #: As `sys.platform` calls it: `"linux"`, `"darwin"`, `"win32"`.
    system: str
    #: As `platform.machine()` calls it: `"x86_64"`, `"aarch64"`, `"arm64"`.
    architecture: str
    #: The Python that torch is for: `"3.11"`.
    python: str
    #: The file that it was read from; empty for this machine.
    file: str = ""
    #: Driver and GPUs by `nvidia-smi`, `"560.94, 0x268410DE"`; empty where a file has the driver's version.
    nvidia_smi: str = ""
    #: The version of the GNU C library, `"2.35"`; empty where there is none, or nobody knows it.
    glibc: str = ""

    @property
    def is_here(self) -> bool:
        """Return whether this is the machine that the command runs on."""
        return not self.file

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
    return (
        _facts(done.stdout.decode(errors="replace"), _NVIDIA_SMI)
        if done.returncode == 0
        else ""
    )


@contextlib.contextmanager
def saved(path: str, python: str = "") -> Iterator[Machine]:
    """Return a context manager with a machine from saved files.

    `path` is a folder or an archive with `/sys` and `/dev`, a bundle, or `machine.json`. Raises
    `MachineFileError` for a file that is missing, damaged, of another kind or too large.
    """
    with (
        _ended_by_signals(),
        tempfile.TemporaryDirectory(prefix="accel-machine-") as folder,
    ):
        root, about = unpacked(Path(path), Path(folder))
        yield Machine(
            str(root),
            about["system"],
            about["architecture"],
            python or about["python"] or "{}.{}".format(*sys.version_info),
            path,
            _facts(about["nvidia_smi"], _NVIDIA_SMI),
            _facts(about["glibc"], rf"\A{_VERSION}\Z"),
        )


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block with `SystemExit`, so that its folder is removed."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    numbers = (
        {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)} if is_main else ()
    )
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def recorded(machine: Machine, toolkits: Mapping[str, str]) -> dict[str, Any]:
    """Return the facts about this machine that `accel setup --machine` reads, as plain values for JSON.

    `toolkits`: glob patterns of files with a toolkit's version, each with the regular expression that reads
    it.
    """
    root = machine.root
    functions = [
        d.address for d in bus.pci_devices(root) if _is_known(d) or _may_count(d)
    ]
    nodes = bus.device_nodes(
        [node for vendor in vendors.VENDORS for node in vendor.nodes], root
    )
    facts = {
        **_FACTS,
        **{f"{_BUS}/{address}/modalias": r"\A.*" for address in functions},
        **{
            f"{_TOPOLOGY}/{name}/properties": _GFX
            for name in hardware.names_in(_TOPOLOGY, root)
        },
        **{
            file: fact
            for glob, fact in toolkits.items()
            for file in bus.device_nodes((glob,), root)
        },
    }
    texts = {
        path: _facts(machine.text(path), expression)
        for path, expression in facts.items()
    }
    drivers = [
        f"{folder}/{name}/x"
        for folder in (WSL_DRIVERS, WINDOWS_DRIVERS)
        for name in hardware.names_in(folder, root)
        if _OF_GPUS.match(name)
    ]
    marks = [*nodes, *_MARKS, *drivers]
    files = {path: text for path, text in texts.items() if text}
    files |= {
        mark: ""
        for mark in marks
        if hardware.path_exists(mark.removesuffix("/x"), root)
    }
    return {
        "schema": _SCHEMA,
        "system": machine.system,
        "architecture": machine.architecture,
        "python": machine.python,
        "nvidia_smi": machine.nvidia_smi,
        "glibc": machine.glibc,
        "files": dict(sorted(files.items())),
    }


def _facts(text: str, expression: str) -> str:
    return "\n".join(found[0] for found in re.finditer(expression, text))
