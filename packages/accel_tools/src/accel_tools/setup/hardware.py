"""Accelerators of a machine and their drivers, read from its files without torch and without a vendor."""

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
    "Hardware",
    "Present",
    "seen",
]

#: Kinds of hardware that a plan can be for, best first: accelerators that were bought to train on, then GPUs
#: in accel's order, then what most CPUs bring along. Names as `Vendor.label` has them.
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
#: Generations of NVIDIA's GPUs that some of PyTorch's builds have no code for.
KEPLER = "the generation Kepler or before"
VOLTA = "the generations Maxwell to Volta"
TURING = "the generation Turing"
#: The first PCI ids of Maxwell (GM108), Turing (TU102) and Ampere (GA100), and those of Turing's TU116 among
#: Ampere's: pci.ids of 2023-04-11.
_FIRST_IDS = (0x1340, 0x1E00, 0x2080)
_TU116 = range(0x2180, 0x2200)
_GENERATIONS = (KEPLER, VOLTA, TURING, "")
#: What is known of Intel's GPUs where PyTorch may lack support for them.
BEFORE_ARC = "older than Arc"
UNNAMED = "of a model that no file names"
#: The first bytes of the PCI ids of Intel's GPUs before Arc: Linux, include/drm/intel/pciids.h. For these
#: torch warns that they are not officially supported: c10/xpu/XPUFunctions.cpp, `intel_gpu_acm_g10`.
INTEL_BEFORE_ARC = frozenset(
    b"\x00\x01\x04\x0a\x0c\x0d\x0f\x16\x19\x1a\x22\x25\x27\x29\x2a\x2e\x31\x35\x3e\x45\x46\x49\x4c\x4e"
    b"\x59\x5a\x87\x8a\x9a\x9b\xa0\xa7"
)
_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"


class Present(NamedTuple):
    """One kind of hardware on the machine."""

    #: For people: `"NVIDIA GPU"`.
    label: str
    #: The backend that drives it: `"cuda"`.
    backend: str
    #: The sign of it: `"PCI 10de:2330 at 0000:17:00.0"`.
    evidence: str


class Hardware(NamedTuple):
    """The accelerators of a machine; the best one for training comes first."""

    present: tuple[Present, ...] = ()
    #: The version of NVIDIA's driver, `"580.65.06"`; empty where neither a file nor `nvidia-smi` has it.
    nvidia: str = ""
    #: AMD's GPU architectures as the driver reports them: `("gfx90a",)`.
    gfx: tuple[str, ...] = ()
    #: A machine of its own kind: `"WSL2"`, `"NVIDIA Jetson AGX Orin"`, `"macOS 15.3"`; else empty.
    kind: str = ""
    #: `KEPLER`, `VOLTA` or `TURING` if the newest of NVIDIA's GPUs is that old.
    generation: str = ""
    #: `BEFORE_ARC` if all of Intel's GPUs are that old, `UNNAMED` if no file has their models; else empty.
    intel: str = ""


def seen(machine: Machine) -> Hardware:
    """Return the accelerators of the machine and their drivers."""
    present = {found.label: found for found in _present(machine)}
    ranked = sorted(present.values(), key=lambda found: RANKED.index(found.label))
    return Hardware(
        tuple(ranked),
        driver_version(machine.root) or re.split("[,\n]", machine.nvidia_smi)[0],
        _architectures(machine),
        _kind(machine),
        _generation(machine),
        _intel(machine, [found.label for found in ranked]),
    )


def _present(machine: Machine) -> Iterator[Present]:
    if machine.system == "darwin":
        if machine.architecture == "arm64":
            yield Present("Apple GPU", "mps", "Apple silicon")
        return
    if machine.system == "win32":
        yield from _on_windows(machine, WINDOWS_DRIVERS)
        return
    for known in vendors.known_hardware(machine.root):
        yield Present(known.label, known.backend, str(known.evidence))
    yield from _on_windows(machine, WSL_DRIVERS)


def _on_windows(machine: Machine, folder: str) -> Iterator[Present]:
    """The GPUs whose Windows drivers lie in that folder: the bus of WSL2 names none."""
    for name in sorted(hardware.names_in(folder, machine.root)):
        for start, label, backend in (
            ("nv_disp", "NVIDIA GPU", "cuda"),
            ("nvd", "NVIDIA GPU", "cuda"),
            ("u0", "AMD GPU", "cuda"),
            ("c0", "AMD GPU", "cuda"),
            ("iigd_dch_d", "Intel discrete GPU", "xpu"),
            ("iigd_dch", "Intel integrated GPU", "xpu"),
        ):
            if name.lower().startswith(start) and ".inf_" in name.lower():
                yield Present(label, backend, f"{folder}/{name}")
                break


def _kind(machine: Machine) -> str:
    if version := re.search(
        r"<key>ProductVersion</key>\s*<string>([\d.]+)", machine.text(MACOS)
    ):
        return f"macOS {version[1]}"
    model = machine.text("/proc/device-tree/model")
    kernel = machine.text("/proc/version").lower()
    if "Jetson" in model:
        return model
    if (
        machine.text("/etc/nv_tegra_release") or "tegra" in kernel
    ):  # an Orin Nano's model lacks the word
        return f"NVIDIA Jetson ({model})" if model else "NVIDIA Jetson"
    return "WSL2" if "microsoft" in kernel else ""


def _architectures(machine: Machine) -> tuple[str, ...]:
    """AMD's GPUs as amdgpu reports them; processors are nodes too, with version 0.

    Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c: `gfx_target_version` is 10000 x major + 100 x minor +
    stepping; ROCm writes the last two in hexadecimal: 90010 is gfx90a.
    """
    found = []
    for name in sorted(
        hardware.names_in(_TOPOLOGY, machine.root), key=lambda n: (len(n), n)
    ):
        properties = machine.text(f"{_TOPOLOGY}/{name}/properties")
        match = re.search(r"(?m)^gfx_target_version (\d+)$", properties)
        if match and (number := int(match[1])):
            found.append(f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}")
    return tuple(dict.fromkeys(found))


def _ids(machine: Machine, pattern: str) -> list[int]:
    """The device ids of the PCI functions that fit, `"10de/03"`."""
    return [
        int(d.device, 16)
        for d in bus.pci_devices(machine.root)
        if bus.matches_pci(d, [pattern])
    ]


def _intel(machine: Machine, labels: list[str]) -> str:
    ids = _ids(machine, "8086/03")
    if (
        "Intel integrated GPU" in labels
        and "Intel discrete GPU" not in labels
        and not ids
    ):
        return (
            UNNAMED  # by Windows' driver, which is the same for old ones and new ones
        )
    return (
        BEFORE_ARC
        if ids and all(number >> 8 in INTEL_BEFORE_ARC for number in ids)
        else ""
    )


def _generation(machine: Machine) -> str:
    by_driver = [
        int(device, 16)
        for device in re.findall("(?i)0x([0-9a-f]{4})10de", machine.nvidia_smi)
    ]
    ids = [*_ids(machine, "10de/03"), *by_driver]
    ages = (
        2 if number in _TU116 else bisect.bisect(_FIRST_IDS, number) for number in ids
    )
    return _GENERATIONS[max(ages, default=len(_FIRST_IDS))]
