"""What this machine has, found without torch and without any vendor's package.

Device nodes, PCI ids, NUMA nodes and the memory limit of the control group. Every function takes `root`,
the folder under which `/sys`, `/proc` and `/dev` are looked for, and treats what cannot be read as absent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from accel_core.backend import Backend

__all__ = [
    "FIRST_PARTY",
    "Evidence",
    "KnownHardware",
    "PciDevice",
    "cgroup_memory_available",
    "cgroup_memory_limit",
    "cgroup_memory_usage",
    "device_nodes",
    "evidence",
    "in_container",
    "known_hardware",
    "matches_pci",
    "numa_nodes_with_cores",
    "pci_devices",
    "platform_matches",
]


class PciDevice(NamedTuple):
    """One PCI function; the ids are lower-case hexadecimal without `0x`."""

    #: `"0000:00:04.0"`: domain, bus, slot, function.
    address: str
    #: Four digits: `"10de"`.
    vendor: str
    #: Four digits: `"2335"`.
    device: str
    #: Six digits, class, subclass, interface: `"030200"`.
    class_code: str

    def __str__(self) -> str:
        return f"{self.vendor}:{self.device} at {self.address}"


class Evidence(NamedTuple):
    """Signs that a device is present; false when there are none."""

    #: Device nodes that exist: `"/dev/nvidia0"`.
    nodes: tuple[str, ...] = ()
    #: PCI functions, as `str(PciDevice)` writes them.
    pci: tuple[str, ...] = ()
    #: The platform itself, where the device is a part of it: `"Apple silicon"`.
    platform: str = ""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.pci or self.platform)

    def __str__(self) -> str:
        parts = (_enumerate(self.nodes), f"PCI {_enumerate(self.pci)}" if self.pci else "", self.platform)
        return "; ".join(part for part in parts if part)


class KnownHardware(NamedTuple):
    """An accelerator found on this machine, and the plugin that drives it."""

    #: For people: `"NVIDIA GPU"`.
    label: str
    #: Name of the backend: `"cuda"`.
    backend: str
    #: The first-party distribution that brings it: `"accel-cuda"`.
    distribution: str
    evidence: Evidence
    #: A part of the processor. Most machines with one were not bought to train on it.
    integrated: bool = False


def _enumerate(items: tuple[str, ...], most: int = 4) -> str:
    """The first few items by comma; a machine with 16 cards must not fill the screen."""
    rest = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + rest


def _read(path: Path) -> str:
    """The stripped text of a small file, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _natural(text: str) -> list[tuple[int, str]]:
    """A sort key that puts `nvidia2` before `nvidia10`."""
    return [(len(part), part) if part.isdigit() else (0, part) for part in re.split(r"([0-9]+)", text)]


def _on_linux() -> bool:
    return sys.platform.startswith("linux")


# --- PCI and device nodes ------------------------------------------------------------------------------

#: How the kernel describes a PCI function to its module loader: vendor, device, subsystem, class.
_MODALIAS = r"pci:v0000(\w{4})d0000(\w{4})sv\w{8}sd\w{8}bc(\w{2})sc(\w{2})i(\w{2})"


@lru_cache(maxsize=8)
def pci_devices(root: str = "/") -> tuple[PciDevice, ...]:
    """The PCI functions that the kernel lists, by address; empty where it lists none.

    Read once a process: a server has hundreds, and every backend asks. One file each says it all.
    """
    found = []
    for path in Path(root).glob("sys/bus/pci/devices/*/modalias"):
        if ids := re.match(_MODALIAS, _read(path)):
            vendor, device, class_code = ids[1], ids[2], ids[3] + ids[4] + ids[5]
            found.append(PciDevice(path.parent.name, vendor.lower(), device.lower(), class_code.lower()))
    return tuple(sorted(found))


def matches_pci(device: PciDevice, pattern: str) -> bool:
    """Whether `device` fits `"vendor"`, `"vendor:device"` or `"vendor/class"` (the first digits)."""
    ids, _, class_prefix = pattern.lower().partition("/")
    vendor, _, product = ids.partition(":")
    return (
        device.vendor == vendor
        and (not product or device.device == product)
        and device.class_code.startswith(class_prefix)
    )


def device_nodes(
    patterns: Iterable[str], root: str = "/", listed: dict[str, list[str]] | None = None
) -> tuple[str, ...]:
    """The paths that fit any of the glob patterns (`"/dev/nvidia[0-9]*"`), in natural order.

    `listed` keeps the names in each folder for a caller who asks several times at once.
    """
    listed = {} if listed is None else listed
    return tuple(
        sorted({path for pattern in patterns for path in _paths(pattern, root, listed)}, key=_natural)
    )


def _paths(pattern: str, root: str, listed: dict[str, list[str]]) -> Iterator[str]:
    """The paths that fit one pattern.

    A pattern is only compiled where a name begins as it does: most machines have none of most vendors'
    nodes, and every process that chooses asks for all of them.
    """
    folder, _, name = pattern.rpartition("/")
    if any(sign in folder for sign in "*?["):
        base = Path(root)
        yield from (f"/{path.relative_to(base).as_posix()}" for path in base.glob(pattern.lstrip("/")))
        return
    fixed = name.partition("*")[0].partition("?")[0].partition("[")[0]
    if folder not in listed:
        try:
            listed[folder] = os.listdir(f"{root.rstrip('/')}{folder or '/'}")
        except OSError:
            listed[folder] = []
    begun = [entry for entry in listed[folder] if entry.startswith(fixed)]
    yield from (f"{folder}/{entry}" for entry in begun if fnmatchcase(entry, name))


def evidence(backend: Backend, root: str = "/") -> Evidence | None:
    """What of `backend`'s hardware is here.

    `None` means "cannot tell": the backend declares neither device nodes nor PCI ids, or this is not
    Linux. A false `Evidence` means "looked, and there is nothing".
    """
    if not _on_linux() or not (backend.device_nodes or backend.pci_ids):
        return None
    bus = pci_devices(root) if backend.pci_ids else ()
    return Evidence(device_nodes(backend.device_nodes, root), _matching(bus, backend.pci_ids))


def _matching(
    bus: tuple[PciDevice, ...], patterns: tuple[str, ...], keep: Callable[[PciDevice], bool] = lambda _: True
) -> tuple[str, ...]:
    return tuple(str(d) for d in bus if keep(d) and any(matches_pci(d, pattern) for pattern in patterns))


# --- Vendors with a first-party plugin -----------------------------------------------------------------


def _integrated_intel(device: PciDevice) -> bool:
    """Intel's integrated GPU, and its virtual functions, always sit in slot 2 of the first bus."""
    return device.address.startswith("0000:00:02.")


def _amd_compute(device: PciDevice) -> bool:
    """Not one of the ATI chips that only draw a server's console (Rage XL, RV100, ES1000)."""
    return device.device not in ("4752", "5159", "515e")


class _Vendor(NamedTuple):
    label: str
    backend: str
    nodes: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    platform: str = ""
    integrated: bool = False
    #: Which of the PCI functions that fit `pci` count.
    keep: Callable[[PciDevice], bool] = lambda _: True


#: Only ids and nodes that belong to one vendor: `/dev/dri` and `/dev/accel` are shared by many, `/dev/dxg`
#: (WSL2) says nothing of the maker, and 19e5 by class would take Kunpeng's ZIP engines for an Ascend.
_VENDORS = (
    _Vendor(
        "NVIDIA GPU",
        "cuda",
        nodes=(
            "/dev/nvidia[0-9]*",
            "/dev/nvhost-ctrl-gpu",  # Jetson
            "/dev/nvgpu/igpu[0-9]*",  # Jetson from L4T 36
            "/usr/lib/wsl/lib/libcuda.so.1",  # WSL2: put there by Windows' NVIDIA driver
        ),
        pci=("10de/03",),
    ),
    _Vendor("AMD GPU", "cuda", nodes=("/dev/kfd",), pci=("1002/03", "1002/12"), keep=_amd_compute),
    _Vendor(
        "Ascend NPU",
        "npu",
        nodes=("/dev/davinci[0-9]*",),
        pci=("19e5:d801", "19e5:d802", "19e5:d803", "19e5:d500"),
    ),
    _Vendor("Intel Gaudi", "hpu", pci=("1da3",)),
    _Vendor("Cambricon MLU", "mlu", nodes=("/dev/cambricon_dev[0-9]*",), pci=("cabc",)),
    _Vendor("Intel discrete GPU", "xpu", pci=("8086/03",), keep=lambda d: not _integrated_intel(d)),
    _Vendor("Intel integrated GPU", "xpu", pci=("8086/03",), keep=_integrated_intel, integrated=True),
    _Vendor("Tecorigin SDAA card", "sdaa", nodes=("/dev/tcaicard[0-9]*",)),
    _Vendor("Biren GPU", "supa", nodes=("/dev/biren/card_[0-9]*",)),
    _Vendor("Apple GPU", "mps", platform="darwin-arm64"),
)

#: Which distribution of ours brings a backend: `"cuda"` is in `"accel-cuda"`.
FIRST_PARTY: Mapping[str, str] = {vendor.backend: f"accel-{vendor.backend}" for vendor in _VENDORS}


def known_hardware(root: str = "/") -> tuple[KnownHardware, ...]:
    """The accelerators on this machine for which a first-party plugin exists or is planned."""
    bus = pci_devices(root)
    listed: dict[str, list[str]] = {}
    found = []
    for vendor in _VENDORS:
        if vendor.platform:
            signs = Evidence(platform="Apple silicon" if platform_matches((vendor.platform,)) else "")
        elif _on_linux():
            nodes = device_nodes(vendor.nodes, root, listed)
            signs = Evidence(nodes, _matching(bus, vendor.pci, vendor.keep))
        else:
            signs = Evidence()
        if signs:
            distribution = FIRST_PARTY[vendor.backend]
            found.append(KnownHardware(vendor.label, vendor.backend, distribution, signs, vendor.integrated))
    return tuple(found)


def in_container(root: str = "/") -> bool:
    """Whether this process runs in a container, by the marks that Docker and Podman leave."""
    return any(Path(root, mark).exists() for mark in (".dockerenv", "run/.containerenv"))


def platform_matches(platforms: tuple[str, ...]) -> bool:
    """Whether this is one of `Backend.platforms`: `"linux"`, `"darwin-arm64"`; none given means any."""
    if not platforms:
        return True
    from platform import machine  # not at the top: the import costs more than this whole module

    here = f"{sys.platform}-{machine()}".lower()
    return here.startswith(tuple(platform.lower() for platform in platforms))


# --- Processor and memory ------------------------------------------------------------------------------


def numa_nodes_with_cores(root: str = "/") -> int:
    """Number of NUMA nodes that have cores, at least 1; memory-only nodes do not count."""
    lists = Path(root).glob("sys/devices/system/node/node[0-9]*/cpulist")
    return max(1, sum(bool(_read(cpulist)) for cpulist in lists))


def cgroup_memory_limit(root: str = "/") -> int | None:
    """Bytes that this process's control group allows: the smallest limit from it up to the root group.

    `None` where no group sets a limit.
    """
    group = _tightest(root)
    return group[0] if group else None


def cgroup_memory_usage(root: str = "/") -> int | None:
    """Bytes used in the group whose limit `cgroup_memory_limit` gives; `None` without a limit.

    File cache that the kernel gives back under pressure is left out, as `docker stats` does: counted, a
    container that had read a large data set would look full.
    """
    group = _tightest(root)
    return group[1] if group else None


def cgroup_memory_available(root: str = "/") -> int | None:
    """Bytes left below the limits, in the group that has least left; `None` without a limit.

    That need not be the group with the smallest limit: its parent may be full with the use of others.
    """
    left = [max(0, limit - used) for limit, used in _limited_groups(root)]
    return min(left) if left else None


def _tightest(root: str) -> tuple[int, int] | None:
    return min(_limited_groups(root), key=lambda group: (group[0], -group[1]), default=None)


class _Hierarchy(NamedTuple):
    """One version of control groups: its file system, default mount and the names of its files."""

    filesystem: str
    mount: str
    limit: str
    usage: str
    cache: str


_V2 = _Hierarchy("cgroup2", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
_V1 = _Hierarchy(
    "cgroup", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)


def _limited_groups(root: str) -> Iterator[tuple[int, int]]:
    """`(limit, used)` of every group above this process that has a limit.

    Both versions are looked at: on a hybrid system only one of them has the memory files.
    """
    if not _on_linux():
        return
    for hierarchy, folder in _group_folders(root):
        limit = _read(folder / hierarchy.limit)
        # "max" is version 2's word for no limit, and version 1 has a number of 19 digits for it.
        if limit.isascii() and limit.isdigit() and len(limit) <= 18:
            yield int(limit), _used(hierarchy, folder)


def _used(hierarchy: _Hierarchy, folder: Path) -> int:
    usage = _read(folder / hierarchy.usage)
    cache = re.search(rf"^{hierarchy.cache} (\d{{1,18}})$", _read(folder / "memory.stat"), re.MULTILINE)
    return max(0, (int(usage) if usage.isdigit() else 0) - (int(cache[1]) if cache else 0))


def _group_folders(root: str) -> Iterator[tuple[_Hierarchy, Path]]:
    """The folders of this process's groups, each with those above it, as far as they are mounted."""
    for line in _read(Path(root, "proc/self/cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        hierarchy = _V1 if controllers else _V2
        top, mount = _mount(hierarchy, root)
        parts = _below(path, top)
        for depth in range(len(parts), -1, -1):
            yield hierarchy, Path(root, mount.lstrip("/"), *parts[:depth])


def _mount(hierarchy: _Hierarchy, root: str) -> tuple[str, str]:
    """Which group is mounted, and where. In a container it is often not the root group."""
    for line in _read(Path(root, "proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        # Version 1 has a mount for each controller, named in the last field.
        controllers = kind[-1].split(",") if hierarchy is _V1 else ["memory"]
        if len(fields) > 4 and kind[0] == hierarchy.filesystem and "memory" in controllers:
            return _unescape(fields[3]), _unescape(fields[4])
    return "/", hierarchy.mount


def _unescape(text: str) -> str:
    r"""Undo the kernel's octal: a space in mountinfo is `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _below(path: str, top: str) -> list[str]:
    """The parts of `path` below the mounted group `top`; none where the path leads out of it."""
    prefix = top.rstrip("/")
    if path != prefix and not path.startswith(f"{prefix}/"):
        return []
    parts = [part for part in path[len(prefix) :].split("/") if part]
    return [] if ".." in parts else parts
