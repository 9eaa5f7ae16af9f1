"""Detect the accelerators of a machine and their drivers from files, without torch or vendor packages."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import NamedTuple

from accel_core import hardware
from accel_core.hardware import bus, vendors
from accel_tools.setup.machines import (
    MACOS,
    WINDOWS_DRIVERS,
    WSL_DRIVERS,
    Machine,
    driver_version,
)

__all__ = [
    "BEFORE_ARC",
    "INTEL_BEFORE_ARC",
    "KEPLER",
    "RANKED",
    "TURING",
    "UNNAMED",
    "VOLTA",
    "DetectedDevice",
    "Hardware",
    "detect_hardware",
]

#: The kinds of hardware for which a plan can be made, best first: training accelerators, then
#: GPUs in accel's order, then GPUs that are part of a CPU. Each name is a `Vendor.label`.
RANKED = (
    "Ascend NPU",
    "Tecorigin SDAA card",
    "Intel Gaudi",
    "Google TPU",
    "AWS Trainium",
    "Cambricon MLU",
    "Moore Threads GPU",
    "Biren GPU",
    "Rebellions NPU",
    "Kunlunxin XPU",
    "NVIDIA GPU",
    "MetaX GPU",
    "Iluvatar GPU",
    "Hygon DCU",
    "AMD GPU",
    "Intel discrete GPU",
    "Apple GPU",
    "Intel integrated GPU",
)
#: Generations of NVIDIA GPUs for which some of PyTorch's builds have no code.
KEPLER = "Kepler or an older generation"
VOLTA = "the generations Maxwell to Volta"
TURING = "the generation Turing"
#: The first PCI device ids of Maxwell (GM108), Turing (TU102) and Ampere (GA100). The ids of TU116, a
#: Turing GPU, are among the ids of Ampere. Source: pci.ids of 2023-04-11.
_FIRST_IDS = (0x1340, 0x1E00, 0x2080)
_TU116 = range(0x2180, 0x2200)
#: The generations, oldest first: before each id of `_FIRST_IDS`, and after the last id.
_GENERATIONS = (KEPLER, VOLTA, TURING, "")
#: Descriptions of Intel GPUs that PyTorch may not support.
BEFORE_ARC = "older than Arc"
UNNAMED = "of an unknown model"
#: The first bytes of the PCI device ids of Intel GPUs older than Arc: Linux, include/drm/intel/pciids.h.
#: torch warns that these GPUs are not officially supported: c10/xpu/XPUFunctions.cpp,
#: `intel_gpu_acm_g10`.
INTEL_BEFORE_ARC = frozenset(
    b"\x00\x01\x04\x0a\x0c\x0d\x0f\x16\x19\x1a\x22\x25\x27\x29\x2a\x2e\x31\x35\x3e\x45\x46\x49\x4c\x4e"
    b"\x59\x5a\x87\x8a\x9a\x9b\xa0\xa7"
)
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"


class DetectedDevice(NamedTuple):
    """One kind of accelerator hardware on the machine, and how it was detected."""

    #: The human-readable name, such as `"NVIDIA GPU"`.
    label: str
    #: The name of the backend that drives the hardware, such as `"cuda"`.
    backend: str
    #: How the hardware was detected, such as `"PCI 10de:2330 at 0000:17:00.0"`, or an empty string if this
    #: machine does not have it.
    evidence: str


class Hardware(NamedTuple):
    """The accelerators of a machine, with the best one for training first, and facts about them."""

    devices: tuple[DetectedDevice, ...] = ()
    #: The NVIDIA driver version, such as `"580.65.06"`, or an empty string if neither a file nor
    #: `nvidia-smi` reports it.
    nvidia_driver: str = ""
    #: The architectures of AMD GPUs as the driver reports them, such as `("gfx90a",)`.
    amd_architectures: tuple[str, ...] = ()
    #: The kind of a special machine, such as `"WSL2"`, `"NVIDIA Jetson AGX Orin"` or `"macOS 15.3"`, or an
    #: empty string.
    machine_kind: str = ""
    #: The generation of the newest NVIDIA GPU if it is `KEPLER`, `VOLTA` or `TURING`. Otherwise, an
    #: empty string.
    nvidia_generation: str = ""
    #: Why PyTorch may not support the Intel GPUs: `BEFORE_ARC` if all Intel GPUs are older than Arc,
    #: `UNNAMED` if no file contains their models. Otherwise, an empty string.
    intel_limitation: str = ""


def detect_hardware(machine: Machine) -> Hardware:
    """Detect the machine's accelerators and their drivers."""
    # A machine may have several devices of a kind, of which one is reported.
    by_label = {device.label: device for device in _detect_devices(machine)}
    devices = sorted(by_label.values(), key=lambda device: RANKED.index(device.label))
    # The output of nvidia-smi begins with the driver's version, which ends at a comma or line end.
    driver_from_nvidia_smi = re.split("[,\n]", machine.nvidia_smi)[0]
    return Hardware(
        devices=tuple(devices),
        nvidia_driver=driver_version(machine.root) or driver_from_nvidia_smi,
        amd_architectures=_amd_architectures(machine),
        machine_kind=_machine_kind(machine),
        nvidia_generation=_nvidia_generation(machine),
        intel_limitation=_intel_limitation(machine, set(by_label)),
    )


def _detect_devices(machine: Machine) -> Iterator[DetectedDevice]:
    """Yield the accelerators of the machine, some of them several times, in no particular order."""
    if machine.system == "darwin":
        if machine.architecture == "arm64":
            yield DetectedDevice("Apple GPU", "mps", "Apple silicon")
    elif machine.system == "win32":
        yield from _windows_devices(machine, WINDOWS_DRIVERS)
    else:
        for vendor in vendors.known_hardware(machine.root):
            yield DetectedDevice(vendor.label, vendor.backend, str(vendor.evidence))
        yield from _windows_devices(machine, WSL_DRIVERS)


#: Prefixes of the names of Windows driver folders, each with the hardware's label and backend. The
#: first prefix that matches counts.
_WINDOWS_DRIVER_PREFIXES = (
    ("nv_disp", "NVIDIA GPU", "cuda"),
    ("nvd", "NVIDIA GPU", "cuda"),
    ("u0", "AMD GPU", "cuda"),
    ("c0", "AMD GPU", "cuda"),
    ("iigd_dch_d", "Intel discrete GPU", "xpu"),
    ("iigd_dch", "Intel integrated GPU", "xpu"),
)


def _windows_devices(machine: Machine, folder: str) -> Iterator[DetectedDevice]:
    """Yield the GPUs whose Windows drivers are in `folder`.

    WSL2 is examined in the same way, because it has no GPUs on the PCI bus.
    """
    for name in sorted(hardware.names_in(folder, machine.root)):
        # The folder of a driver is such as "nv_dispi.inf_amd64_0f6f1c6d7b1b".
        if ".inf_" not in name.lower():
            continue
        for prefix, label, backend in _WINDOWS_DRIVER_PREFIXES:
            if name.lower().startswith(prefix):
                yield DetectedDevice(label, backend, f"{folder}/{name}")
                break


def _machine_kind(machine: Machine) -> str:
    """Return the kind of a special machine, such as `"WSL2"` or `"macOS 15.3"`.

    Returns an empty string for other machines.
    """
    macos_version = re.search(
        r"<key>ProductVersion</key>\s*<string>([\d.]+)", machine.text(MACOS)
    )
    if macos_version:
        return f"macOS {macos_version[1]}"
    model = machine.text("/proc/device-tree/model")
    kernel = machine.text("/proc/version").lower()
    if "Jetson" in model:
        return model
    # The model of an Orin Nano does not contain "Jetson".
    if machine.text("/etc/nv_tegra_release") or "tegra" in kernel:
        return f"NVIDIA Jetson ({model})" if model else "NVIDIA Jetson"
    return "WSL2" if "microsoft" in kernel else ""


def _amd_architectures(machine: Machine) -> tuple[str, ...]:
    """Return the architectures of AMD GPUs that the driver amdgpu reports, without duplicates.

    `gfx_target_version` is 10000 x major + 100 x minor + stepping (Linux,
    drivers/gpu/drm/amd/amdkfd/kfd_topology.c). ROCm writes the minor version and the stepping in
    hexadecimal, so 90010 is gfx90a. CPUs are nodes too, with version 0.
    """
    architectures = []
    nodes = hardware.names_in(_TOPOLOGY, machine.root)
    # The names are numbers without leading zeros, so a shorter name is a smaller number.
    in_numeric_order = sorted(nodes, key=lambda name: (len(name), name))
    for node in in_numeric_order:
        properties = machine.text(f"{_TOPOLOGY}/{node}/properties")
        match = re.search(r"(?m)^gfx_target_version (\d+)$", properties)
        version = int(match[1]) if match else 0
        if version == 0:  # The node is a CPU.
            continue
        # 90010 is version 9.0.10, which is written as gfx90a: 10 is "a" in hexadecimal.
        major_and_minor, stepping = divmod(version, 100)
        major, minor = divmod(major_and_minor, 100)
        architecture = f"gfx{major}{minor:x}{stepping:x}"
        if architecture not in architectures:
            architectures.append(architecture)
    return tuple(architectures)


#: Patterns that match the display controllers (PCI class 03) of NVIDIA and Intel.
_NVIDIA_DISPLAY, _INTEL_DISPLAY = "10de/03", "8086/03"


def _pci_device_ids(machine: Machine, pattern: str) -> list[int]:
    """Return the device ids of the PCI devices that match a pattern, such as `"10de/03"`."""
    ids = []
    for device in bus.pci_devices(machine.root):
        if bus.matches_pci(device, [pattern]):
            ids.append(int(device.device, 16))
    return ids


def _intel_limitation(machine: Machine, labels: set[str]) -> str:
    """Return `BEFORE_ARC` or `UNNAMED` if PyTorch may not support the machine's Intel GPUs.

    Returns an empty string otherwise. `labels` contains the labels of the detected devices.
    """
    ids = _pci_device_ids(machine, _INTEL_DISPLAY)
    if ids:
        # The first byte of the device id 0x46a6 is 0x46.
        first_bytes = {device_id >> 8 for device_id in ids}
        are_all_old = first_bytes.issubset(INTEL_BEFORE_ARC)
        return BEFORE_ARC if are_all_old else ""
    has_integrated_gpu = "Intel integrated GPU" in labels
    has_discrete_gpu = "Intel discrete GPU" in labels
    if has_integrated_gpu and not has_discrete_gpu:
        # The GPU was detected by its Windows driver, which is the same for old and new models.
        return UNNAMED
    return ""


def _nvidia_generation(machine: Machine) -> str:
    """Return the generation of the newest NVIDIA GPU: `KEPLER`, `VOLTA` or `TURING`.

    The string is empty for newer generations, and for a machine without an NVIDIA GPU.
    """
    ids = _pci_device_ids(machine, _NVIDIA_DISPLAY)
    # nvidia-smi reports a GPU as 0xDDDD10DE: its device id, and NVIDIA's vendor id.
    for device_id in re.findall("(?i)0x([0-9a-f]{4})10de", machine.nvidia_smi):
        ids.append(int(device_id, 16))
    if not ids:
        return ""
    newest = max(_generation_index(device_id) for device_id in ids)
    return _GENERATIONS[newest]


def _generation_index(device_id: int) -> int:
    """Return the index in `_GENERATIONS` of the NVIDIA GPU with a PCI device id."""
    if device_id in _TU116:  # The ids of this Turing GPU are among the ids of Ampere.
        return _GENERATIONS.index(TURING)
    # Each of the ids begins a generation, and newer generations have higher ids.
    return bisect.bisect(_FIRST_IDS, device_id)
