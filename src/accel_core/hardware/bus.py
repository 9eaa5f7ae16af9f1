"""Devices, found without torch and without any vendor's package: on the PCI bus and by their nodes in `/dev`.

Every function takes `root`, the folder under which `/sys` and `/dev` are looked for, and treats what cannot
be read as absent.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from accel_core import hardware
from accel_core.backend import Backend


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
    """Signs that a device is present; false if there are none."""

    #: Device nodes that exist: `"/dev/nvidia0"`.
    nodes: tuple[str, ...] = ()
    #: PCI functions, as `str(PciDevice)` writes them.
    pci: tuple[str, ...] = ()
    #: The platform itself, where the device is a part of it: `"Apple silicon"`.
    platform: str = ""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.pci or self.platform)

    def __str__(self) -> str:
        parts = (enumerated(self.nodes), f"PCI {enumerated(self.pci)}" if self.pci else "", self.platform)
        return "; ".join(part for part in parts if part)


def enumerated(items: tuple[str, ...], most: int = 4) -> str:
    """Return the first few items, joined by commas, and how many more there are."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def with_article(name: str) -> str:
    """Return a device's name with its article, `"an NVIDIA GPU"`: a word in capitals is spelled."""
    spelled = name[:2].isupper() and name[0] in "FHLMNRSX"
    return f"{'an' if spelled or name[:1] in tuple('AEIOU') else 'a'} {name}"


def none_found(hardware: Iterable[str]) -> str:
    """Return `"no NVIDIA or AMD GPU found"`; names that end in one word share it."""
    makers: dict[str, list[str]] = {}
    for name in dict.fromkeys(filter(None, hardware)):
        maker, _, kind = name.rpartition(" ")
        makers.setdefault(kind, []).append(maker)
    alike = ((kind, ", ".join(names[:-1]), names[-1]) for kind, names in makers.items())
    kinds = [f"no {' or '.join(filter(None, said))} {kind}".replace("  ", " ") for kind, *said in alike]
    return f"{', '.join(kinds) or 'no device'} found"


def evidence(backend: Backend, root: str = "/") -> Evidence | None:
    """Look for `backend`'s hardware on this machine.

    `None` means "cannot tell": the backend declares neither device nodes nor PCI ids, or this is not Linux. A
    false `Evidence` means that the hardware was looked for and not found.
    """
    if not hardware.on_linux() or not (backend.hardware.nodes or backend.hardware.pci_ids):
        return None
    functions = tuple(str(d) for d in pci_devices(root) if matches_pci(d, backend.hardware.pci_ids))
    return Evidence(device_nodes(backend.hardware.nodes, root), functions)


# --- The PCI bus ---------------------------------------------------------------------------------------

_BUS = "/sys/bus/pci/devices"


@lru_cache(maxsize=8)
def pci_devices(root: str = "/") -> tuple[PciDevice, ...]:
    """Return the PCI functions that the kernel lists, by address; empty if it lists none.

    They are read once per process, because a server has hundreds and every backend asks.
    """
    names = hardware.names_in(_BUS, root)
    functions = (_pci_device(name, hardware.read_text(f"{_BUS}/{name}/modalias", root)) for name in names)
    return tuple(sorted(function for function in functions if function is not None))


def _pci_device(address: str, modalias: str) -> PciDevice | None:
    """The function that the kernel describes so to its module loader; `None` for a device of another kind.

    In one file, of fixed width: `pci:v000010DEd00002335sv000010DEsd000016C1bc03sc02i00`, which are vendor,
    device, their subsystem's, base class, subclass and interface (Linux, scripts/mod/file2alias.c,
    `do_pci_entry`). A regular expression would take longer to compile than the whole bus takes to read.
    """
    markers = (modalias[:9], modalias[13:18], modalias[42:44], modalias[46:48], modalias[50:51])
    if markers != ("pci:v0000", "d0000", "bc", "sc", "i") or len(modalias) != 53:
        return None
    ids = modalias.lower()
    return PciDevice(address, ids[9:13], ids[18:22], ids[44:46] + ids[48:50] + ids[51:53])


def matches_pci(device: PciDevice, patterns: Iterable[str]) -> bool:
    """Whether `device` fits one of `"vendor"`, `"vendor:device"` and `"vendor/class"` (the first digits)."""
    for pattern in patterns:  # a loop, as every function of the bus meets every pattern in each first choice
        ids, _, class_prefix = pattern.lower().partition("/")
        vendor, _, product = ids.partition(":")
        is_its = device.vendor == vendor and product in ("", device.device)
        if is_its and device.class_code.startswith(class_prefix):
            return True
    return False


# --- Device nodes --------------------------------------------------------------------------------------


def device_nodes(patterns: Iterable[str], root: str = "/") -> tuple[str, ...]:
    """Return the paths that match any of the glob patterns (`"/dev/nvidia[0-9]*"`), in natural order."""
    names: dict[str, list[str]] = {}  # in each folder, which is listed once
    found = {path for pattern in patterns for path in _paths(pattern, root, names)}
    return tuple(sorted(found, key=_natural))


def _paths(pattern: str, root: str, names: dict[str, list[str]]) -> Iterator[str]:
    """The paths that fit one pattern.

    A pattern is only compiled where a name begins as it does: most machines have none of most vendors'
    nodes, and every process that chooses asks for all of them.
    """
    folder, _, name = pattern.rpartition("/")
    if any(wildcard in folder for wildcard in "*?["):
        from glob import glob  # not at the top: no vendor that we know needs it

        yield from (f"/{path}" for path in glob(pattern.lstrip("/"), root_dir=root))
        return
    if folder not in names:
        names[folder] = hardware.names_in(folder, root)
    fixed = name.partition("*")[0].partition("?")[0].partition("[")[0]
    likely = (entry for entry in names[folder] if entry.startswith(fixed))
    yield from (f"{folder}/{entry}" for entry in likely if fnmatchcase(entry, name))


def matches_node(path: str, patterns: Iterable[str]) -> bool:
    """Whether `path`, which `device_nodes` gave for these and other patterns, is there because of these."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _natural(text: str) -> list[tuple[int, str]]:
    """A sort key that puts `nvidia2` before `nvidia10`."""
    return [(len(part), part) if part.isdigit() else (0, part) for part in re.split(r"([0-9]+)", text)]
