"""Which processor cores each rank of a host gets: those near its device, and none twice.

Reads `/sys` under `root`. What cannot be read or understood counts as absent: then all cores that the
process may use are one node, and are shared out evenly.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Cores", "allowed_cores", "as_ranges", "device_node", "numa_nodes", "parse_ranges", "share_out"]

#: No machine has more; also keeps a malformed range from filling memory.
_MOST = 1 << 16


class Cores(NamedTuple):
    """What one rank gets."""

    #: Logical cores, sorted; shared with other ranks where there are more ranks than cores.
    ids: tuple[int, ...]
    #: Compute threads that these cores are good for: hyper-threads and shares do not count.
    threads: int
    #: The NUMA node.
    node: int


def allowed_cores() -> frozenset[int] | None:
    """The logical cores that this process may use (cpusets are in it); `None` where it cannot be bound."""
    if not hasattr(os, "sched_getaffinity") or not hasattr(os, "sched_setaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0))


def share_out(
    near: Sequence[int | None], allowed: Collection[int], root: str = "/", *, quota: float | None = None
) -> list[Cores]:
    """The cores of each rank, of which `near` says the NUMA node of its device, `None` where not known.

    Ranks without a known node are spread evenly over the nodes. Within a node each rank gets an equal run
    of whole cores: two ranks never share one by hyper-threading. `quota` is how many cores the control
    group lets the whole process use.
    """
    nodes = {
        node: cores for node, ids in numa_nodes(root).items() if (cores := _physical(ids, allowed, root))
    }
    nodes = nodes or {0: _physical(sorted(allowed), allowed, root)}
    order = sorted(nodes)
    homes = [
        node if node in nodes else order[rank * len(order) // len(near)] for rank, node in enumerate(near)
    ]
    most = None if quota is None else max(1, int(quota / len(near)))
    return [
        _part(nodes[home], homes[:rank].count(home), homes.count(home), home, most)
        for rank, home in enumerate(homes)
    ]


def _part(cores: list[tuple[int, ...]], place: int, ranks: int, node: int, most: int | None) -> Cores:
    """The share of the `place`-th of `ranks` ranks on a node."""
    mine = (
        cores[place * len(cores) // ranks : (place + 1) * len(cores) // ranks] if ranks <= len(cores) else []
    )
    threads = len(mine) or 1
    ids = tuple(sorted(core for siblings in mine or cores for core in siblings))
    return Cores(ids, min(threads, most or threads), node)


def _physical(ids: Collection[int], allowed: Collection[int], root: str) -> list[tuple[int, ...]]:
    """Whole cores: the hyper-threads of each that are both in `ids` and allowed, in order of their first."""
    found: dict[int, list[int]] = {}
    for core in sorted(set(ids) & set(allowed)):
        file = Path(root, f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        siblings = parse_ranges(_read(file)) or (core,)
        found.setdefault(min(siblings), []).append(core)
    return [tuple(cores) for _, cores in sorted(found.items())]


def numa_nodes(root: str = "/") -> dict[int, tuple[int, ...]]:
    """The cores of each NUMA node that has some; a node whose list cannot be understood is left out."""
    found = {}
    for path in Path(root).glob("sys/devices/system/node/node[0-9]*/cpulist"):
        number = path.parent.name.removeprefix("node")
        if number.isdigit() and (cores := parse_ranges(_read(path))):
            found[int(number)] = cores
    return found


def device_node(pci_address: str | None, root: str = "/") -> int | None:
    """The NUMA node of the PCI device; `None` where the kernel does not know it."""
    if not pci_address:
        return None
    text = _read(Path(root, "sys/bus/pci/devices", pci_address.lower(), "numa_node"))
    return int(text) if re.fullmatch(r"\d{1,5}", text) else None  # the kernel writes -1 for "not known"


def parse_ranges(text: str) -> tuple[int, ...] | None:
    """`"0-3,8"` as the kernel writes it; `None` for anything else."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        if not match:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= _MOST:
            return None
        cores.update(range(first, last + 1))
    return tuple(sorted(cores))


def as_ranges(cores: Sequence[int]) -> str:
    """`"0-3,8"` for sorted numbers."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def cpu_quota(root: str = "/") -> float | None:
    """How many cores' time the control groups (version 2) allow, the least of them; `None` for no limit."""
    match = re.search(r"^0::/(.*)$", _read(Path(root, "proc/self/cgroup")), re.MULTILINE)
    parts = [part for part in match[1].split("/") if part not in ("", "..")] if match else []
    limits = []
    for depth in range(len(parts) + 1):
        text = _read(Path(root, "sys/fs/cgroup", *parts[:depth], "cpu.max"))
        if limit := re.fullmatch(r"(\d{1,12}) ([1-9]\d{0,11})", text):
            limits.append(int(limit[1]) / int(limit[2]))
    return min(limits, default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
