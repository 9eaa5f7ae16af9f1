"""CPU cores for ranks: hyper-threads of one core stay together; lists of cores are in the kernel's format."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from accel_core import hardware

__all__ = [
    "format_ranges",
    "numa_node_of",
    "numa_nodes",
    "parse_ranges",
    "physical_cores",
]

_BUS = "/sys/bus/pci/devices"
_NODES = "/sys/devices/system/node"
#: No machine has more cores; also keeps a malformed range from filling memory.
_MOST_CORES = 1 << 16


def numa_nodes(root: str = "/") -> dict[int, tuple[int, ...]]:
    """Return the logical cores of each NUMA node that has some; memory-only nodes (CXL, HBM) are left out."""
    nodes = {}
    for name in hardware.names_in(_NODES, root):
        number = hardware.parse_number(name.removeprefix("node"))
        if name.startswith("node") and number is not None:
            cores = parse_ranges(hardware.read_text(f"{_NODES}/{name}/cpulist", root))
            if cores:
                nodes[number] = cores
    return nodes


def numa_node_of(pci_address: str | None, root: str = "/") -> int | None:
    """Return the NUMA node of the PCI device; `None` if the kernel does not know it."""
    text = (
        hardware.read_text(f"{_BUS}/{pci_address.lower()}/numa_node", root)
        if pci_address
        else ""
    )
    return hardware.parse_number(text)  # the kernel writes -1 for "not known"


def parse_ranges(text: str) -> tuple[int, ...] | None:
    """Return the numbers in `"0-3,8"`, as the kernel writes lists of cores; `None` for anything else."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        begin, end = (
            hardware.parse_number(first),
            hardware.parse_number(last if dash else first),
        )
        if begin is None or end is None or not begin <= end < _MOST_CORES:
            return None
        cores.update(range(begin, end + 1))
    return tuple(sorted(cores))


def physical_cores(ids: Collection[int], root: str = "/") -> list[tuple[int, ...]]:
    """Return the logical cores `ids` grouped by physical core, ordered by the first of each group."""
    cores: dict[int, list[int]] = {}
    for core in sorted(ids):
        file = f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        siblings = parse_ranges(hardware.read_text(file, root)) or (core,)
        cores.setdefault(min(siblings), []).append(core)
    return [tuple(threads) for _, threads in sorted(cores.items())]


def format_ranges(cores: Sequence[int]) -> str:
    """Return sorted numbers as ranges: `"0-3,8"`."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in runs
    )
