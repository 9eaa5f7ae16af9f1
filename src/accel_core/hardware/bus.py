"""Find devices by their PCI functions and by their device nodes in `/dev`.

Neither torch nor a vendor's package is imported. Every function that takes `root` looks
for `/sys` and `/dev` below that folder, and treats unreadable files as absent.
"""

import glob
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from accel_core import hardware
from accel_core.backend import Backend


@dataclass(frozen=True)
class PciDevice:
    """A PCI function (a device on the PCI bus). Its ids are lower-case hexadecimal
    digits without `0x`.
    """

    #: Domain, bus, slot and function, such as `"0000:00:04.0"`.
    address: str
    #: The vendor id, four digits, such as `"10de"`.
    vendor: str
    #: The device id, four digits, such as `"2335"`.
    device: str
    #: Six digits for class, subclass and interface, such as `"030200"`.
    class_code: str

    def __str__(self) -> str:
        return f"{self.vendor}:{self.device} at {self.address}"


@dataclass(frozen=True)
class Evidence:
    """The signs that a device is present. An instance without any sign is falsy."""

    #: The device nodes that exist, such as `"/dev/nvidia0"`.
    nodes: tuple[str, ...] = ()
    #: The device's PCI functions, in the form of `str(PciDevice)`.
    pci: tuple[str, ...] = ()
    #: The platform, such as `"Apple silicon"`, if the device is a part of the platform.
    platform: str = ""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.pci or self.platform)

    def __str__(self) -> str:
        parts = []
        if self.nodes:
            parts.append(enumerated(self.nodes))
        if self.pci:
            parts.append(f"PCI {enumerated(self.pci)}")
        if self.platform:
            parts.append(self.platform)
        return "; ".join(parts)


def enumerated(items: tuple[str, ...], most: int = 4) -> str:
    """Join the first `most` items with commas, and append the number of remaining items."""
    text = ", ".join(items[:most])
    remaining = len(items) - most
    if remaining > 0:
        text += f" and {remaining} more"
    return text


def with_article(name: str) -> str:
    """Return a device's name with its indefinite article, such as `"an NVIDIA GPU"` or
    `"a Google TPU"`.
    """
    # Names in capitals are pronounced letter by letter. The names of these letters begin
    # with a vowel sound.
    is_spelled = name[:2].isupper() and name[0] in "FHLMNRSX"
    if is_spelled or name.startswith(("A", "E", "I", "O", "U")):
        return f"an {name}"
    return f"a {name}"


def none_found(names: Iterable[str]) -> str:
    """Return a clause such as `"no NVIDIA or AMD GPU found"` for the device names
    `"NVIDIA GPU"` and `"AMD GPU"`. Names with the same last word share that word.
    """
    makers_by_kind: dict[str, list[str]] = {}
    for name in names:
        # "NVIDIA GPU" consists of a maker and a kind. A name of one word has no maker.
        maker, _, kind = name.rpartition(" ")
        makers = makers_by_kind.setdefault(kind, [])
        if maker not in makers:
            makers.append(maker)
    makers_by_kind.pop("", None)  # An empty name names no device.
    clauses = []
    for kind, makers in makers_by_kind.items():
        alternatives = makers[-1]
        if len(makers) > 1:
            alternatives = f"{', '.join(makers[:-1])} or {makers[-1]}"
        device = f"{alternatives} {kind}".strip()
        clauses.append(f"no {device}")
    if not clauses:
        return "no device found"
    return f"{', '.join(clauses)} found"


def evidence(backend: Backend, root: str = "/") -> Evidence | None:
    """Look for the hardware of `backend` on this machine, and return the signs of it.

    If no sign was found, the result is an empty `Evidence`, which is falsy. The result
    is `None` if the presence cannot be determined, because the backend declares neither
    device nodes nor PCI ids, or because this system is not Linux.
    """
    declared = backend.hardware
    if not hardware.on_linux() or not (declared.nodes or declared.pci_ids):
        return None
    matching_devices = []
    for device in pci_devices(root):
        if matches_pci(device, declared.pci_ids):
            matching_devices.append(str(device))
    return Evidence(
        nodes=device_nodes(declared.nodes, root), pci=tuple(matching_devices)
    )


# --- The PCI bus --------------------------------------------------------------------

_BUS = "/sys/bus/pci/devices"

#: How the kernel describes a PCI function to its module loader. The ids are vendor,
#: device, the subsystem's vendor and device, base class, subclass and interface (Linux,
#: scripts/mod/file2alias.c, `do_pci_entry`).
_MODALIAS = re.compile(
    "pci:v0000(?P<vendor>[0-9a-f]{4})d0000(?P<device>[0-9a-f]{4})"
    "sv[0-9a-f]{8}sd[0-9a-f]{8}"
    "bc(?P<base_class>[0-9a-f]{2})sc(?P<subclass>[0-9a-f]{2})"
    "i(?P<interface>[0-9a-f]{2})"
)


@lru_cache(maxsize=8)
def pci_devices(root: str = "/") -> tuple[PciDevice, ...]:
    """List the PCI functions that the kernel reports, sorted by address.

    The bus is read once per process, because a server has hundreds of PCI functions and
    every backend searches them.
    """
    devices = []
    for address in sorted(hardware.names_in(_BUS, root)):
        modalias = hardware.read_text(f"{_BUS}/{address}/modalias", root)
        ids = _MODALIAS.fullmatch(modalias.lower())
        if ids:
            class_code = ids["base_class"] + ids["subclass"] + ids["interface"]
            devices.append(PciDevice(address, ids["vendor"], ids["device"], class_code))
    return tuple(devices)


def matches_pci(device: PciDevice, patterns: Iterable[str]) -> bool:
    """Return whether `device` matches one of the PCI id patterns.

    A pattern is `"vendor"`, `"vendor:device"` or `"vendor/class"`. The class may
    consist of its first digits only, as in `"10de/03"`.
    """
    for pattern in patterns:
        # A pattern without a device id, or without a class, matches every one.
        ids, _, class_prefix = pattern.lower().partition("/")
        vendor_id, _, device_id = ids.partition(":")
        has_ids = device.vendor == vendor_id and device_id in ("", device.device)
        if has_ids and device.class_code.startswith(class_prefix):
            return True
    return False


# --- Device nodes -------------------------------------------------------------------


def device_nodes(patterns: Iterable[str], root: str = "/") -> tuple[str, ...]:
    """List the paths that match any of the glob patterns.

    `patterns` are absolute paths such as `"/dev/nvidia[0-9]*"`. The result is in natural
    order: `nvidia2` precedes `nvidia10`.
    """
    names_by_folder: dict[str, list[str]] = {}  # Each folder is listed only once.
    nodes: set[str] = set()
    for pattern in patterns:
        folder, _, name_pattern = pattern.rpartition("/")
        if _has_wildcard(folder):
            # Relative to `root_dir`, a pattern must not begin with a slash.
            paths = glob.glob(pattern.lstrip("/"), root_dir=root)
            nodes.update(f"/{path}" for path in paths)
            continue
        if folder not in names_by_folder:
            names_by_folder[folder] = hardware.names_in(folder, root)
        for name in names_by_folder[folder]:
            if fnmatchcase(name, name_pattern):
                nodes.add(f"{folder}/{name}")
    return tuple(sorted(nodes, key=_natural_key))


def matches_node(path: str, patterns: Iterable[str]) -> bool:
    """Return whether the device node `path` matches one of the glob patterns."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _has_wildcard(pattern: str) -> bool:
    return re.search(r"[*?[]", pattern) is not None


def _natural_key(path: str) -> list[tuple[int, str]]:
    """Return a sort key that puts `nvidia2` before `nvidia10`."""
    key = []
    for part in re.split(r"([0-9]+)", path):  # "nvidia10" becomes "nvidia", "10".
        # Of two numbers without leading zeros, the longer is larger.
        length = len(part) if part.isdigit() else 0
        key.append((length, part))
    return key
