"""The machine that torch is to be set up on: this one, or one whose files were saved.

All files are read below a folder, `Machine.root`: `/` for this machine, and the folder of the saved files for
another. So the same code reads both.
"""

from __future__ import annotations

import contextlib
import io
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from accel_core.errors import AccelError
from accel_core.toolkit import devices, host, vendors

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

#: The name of a saved machine inside a bundle of `accel doctor`.
FILE = "machine.json"
_SCHEMA = 1
#: Bytes of a file in an archive that may count; the longest is the list of a GPU's properties.
_MOST = 65_536
#: Bytes that a saved machine may have: a tree of `/sys` and `/dev` is small.
_LARGEST = 50 * 2**20

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


class MachineFileError(AccelError, ValueError):
    """The error for a file that does not describe a machine."""


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
        return host.read_text(path, self.root).replace("\0", "").strip()


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
        if found := re.search(_NVIDIA_VERSION, host.read_text(path, root)):
            return found[0]
    return ""


def unknown_devices(machine: Machine) -> tuple[devices.PciDevice, ...]:
    """Return PCI functions that may be accelerators, but are from no vendor that we know."""
    found = devices.pci_devices(machine.root) if machine.system == "linux" else ()
    return tuple(device for device in found if _may_count(device) and not _is_known(device))


def _is_known(device: devices.PciDevice) -> bool:
    return devices.matches_pci(device, [pattern for vendor in vendors.VENDORS for pattern in vendor.pci])


def _may_count(device: devices.PciDevice) -> bool:
    return device.class_code.startswith(_MAY_COUNT)


def _by_nvidia_smi(root: str) -> str:
    """Ask `nvidia-smi` on Windows and in WSL2, if no file has the driver's version; empty on any failure."""
    in_wsl = "microsoft" in host.read_text("/proc/version", root).lower()
    if not (in_wsl or sys.platform == "win32") or driver_version(root):
        return ""
    places = ("nvidia-smi", *([_WSL_NVIDIA_SMI] if in_wsl else []))
    program = next(filter(None, map(shutil.which, places)), None)
    if not program:
        return ""
    ask = [program, "--query-gpu=driver_version,pci.device_id", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            ask, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return _facts(done.stdout.decode(errors="replace"), _NVIDIA_SMI) if done.returncode == 0 else ""


@contextlib.contextmanager
def saved(path: str, python: str = "") -> Iterator[Machine]:
    """Return a context manager with a machine from saved files.

    `path` is a folder or an archive with `/sys` and `/dev`, a bundle, or `machine.json`. Raises
    `MachineFileError` for a file that is missing, of another kind, or larger than 50 MB.
    """
    with tempfile.TemporaryDirectory(prefix="accel-machine-") as folder:
        about = _unpacked(Path(path), Path(folder))
        root = path if Path(path).is_dir() else folder
        yield Machine(
            root,
            str(about.get("system", "linux")),
            str(about.get("architecture", "x86_64")),
            python or str(about.get("python", "")) or "{}.{}".format(*sys.version_info),
            path,
            _facts(str(about.get("nvidia_smi", "")), _NVIDIA_SMI),
            _facts(str(about.get("glibc", "")), rf"\A{_VERSION}\Z"),
        )


def _unpacked(path: Path, folder: Path) -> dict[str, Any]:
    """Write the machine's files below `folder`, if they are packed; give what is known besides."""
    try:
        if path.is_dir():
            found = path / FILE
            return _document(found.read_text("utf-8"), path) if found.is_file() else _of_tree(path, path)
        if path.stat().st_size > _LARGEST:
            raise MachineFileError(f"{path} is larger than 50 MB: save /sys and /dev of the machine alone")
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if FILE in archive.namelist():
                    return _written(_document(archive.read(FILE).decode(), path), folder)
                _extract_zip(archive, folder)
            return _of_tree(folder, path)
        if tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                _extract_tar(tar, folder)
            return _of_tree(folder, path)
        return _written(_document(path.read_text("utf-8"), path), folder)
    except OSError as error:
        raise MachineFileError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise MachineFileError(f"{path} is {_EXPECTED}") from None


_EXPECTED = (
    "none of what is expected: a folder or an archive (zip, tar) with /sys and /dev of a machine, a bundle "
    "of accel doctor --bundle, or a machine.json out of one"
)


def _document(text: str, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("files"), dict):
        raise MachineFileError(f"{path} is {_EXPECTED}")
    return document


def _written(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write the document's files below `folder`; names that lead out of it are left out."""
    for name, text in document["files"].items():
        _write(folder, str(name), str(text).encode())
    return document


def _write(folder: Path, name: str, data: bytes) -> None:
    parts = [part for part in PurePosixPath(name).parts if part not in ("/", ".")]
    if parts and ".." not in parts:
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _extract_zip(archive: zipfile.ZipFile, folder: Path) -> None:
    for info in archive.infolist():
        if not info.is_dir() and info.file_size <= _MOST:
            _write(folder, info.filename, archive.read(info))


def _extract_tar(tar: tarfile.TarFile, folder: Path) -> None:
    for member in tar:  # device nodes and links become empty files: only their names are read
        if not member.isdir():
            small = member.isfile() and member.size <= _MOST
            file = tar.extractfile(member) if small else None
            _write(folder, member.name, (file or io.BytesIO()).read())


def _of_tree(folder: Path, path: Path) -> dict[str, Any]:
    """Check that a tree is a machine's; with Linux, and the architecture that its kernel names."""
    if not any((folder / name).is_dir() for name in ("sys", "dev", "proc", "usr")):
        raise MachineFileError(f"{path} is {_EXPECTED}")
    version = host.read_text("/proc/version", str(folder))
    return {"architecture": "aarch64" if re.search("aarch64|arm64|tegra", version) else "x86_64"}


def recorded(machine: Machine, toolkits: Mapping[str, str]) -> dict[str, Any]:
    """Return what `accel setup --machine` needs of this machine, as plain values for JSON.

    `toolkits`: glob patterns of files with a toolkit's version, each with the regular expression that reads
    it.
    """
    root = machine.root
    functions = [d.address for d in devices.pci_devices(root) if _is_known(d) or _may_count(d)]
    nodes = devices.device_nodes([node for vendor in vendors.VENDORS for node in vendor.nodes], root)
    facts = {
        **_FACTS,
        **{f"{_BUS}/{address}/modalias": r"\A.*" for address in functions},
        **{f"{_TOPOLOGY}/{name}/properties": _GFX for name in host.names_in(_TOPOLOGY, root)},
        **{file: fact for glob, fact in toolkits.items() for file in devices.device_nodes((glob,), root)},
    }
    texts = {path: _facts(machine.text(path), expression) for path, expression in facts.items()}
    drivers = [
        f"{folder}/{name}/x"
        for folder in (WSL_DRIVERS, WINDOWS_DRIVERS)
        for name in host.names_in(folder, root)
        if _OF_GPUS.match(name)
    ]
    marks = [*nodes, *_MARKS, *drivers]
    files = {path: text for path, text in texts.items() if text}
    files |= {mark: "" for mark in marks if host.path_exists(mark.removesuffix("/x"), root)}
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
