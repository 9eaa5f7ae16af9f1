"""Read the CPU cores and NUMA nodes of this host from Linux's `/sys`, and format lists of cores."""

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

_PCI_DEVICES = "/sys/bus/pci/devices"
_NODES = "/sys/devices/system/node"
#: More cores than any machine has. The limit keeps a malformed range such as "0-9999999999" from filling
#: memory.
_MAX_CORES = 1 << 16


def numa_nodes(root: str = "/") -> dict[int, tuple[int, ...]]:
    """Return the logical cores of each NUMA node, by node number.

    Nodes that have only memory (CXL, HBM) are left out. `root` is the folder that contains `sys`.
    """
    nodes = {}
    for name in hardware.names_in(_NODES, root):
        if not name.startswith("node"):
            continue
        number = hardware.parse_number(name.removeprefix("node"))
        cores = parse_ranges(hardware.read_text(f"{_NODES}/{name}/cpulist", root))
        # A node that has only memory has no cores.
        if number is not None and cores:
            nodes[number] = cores
    return nodes


def numa_node_of(pci_address: str | None, root: str = "/") -> int | None:
    """Return the NUMA node of the device at a PCI address such as `"0000:3B:00.0"`.

    Returns `None` if the node is unknown.
    """
    if not pci_address:
        return None
    file = f"{_PCI_DEVICES}/{pci_address.lower()}/numa_node"
    # The kernel writes -1 for an unknown node, for which parse_number returns None.
    return hardware.parse_number(hardware.read_text(file, root))


def parse_ranges(text: str) -> tuple[int, ...] | None:
    """Parse a list of cores in the Linux kernel's format: `"0-3,8"` gives `(0, 1, 2, 3, 8)`.

    Returns `None` if the text is not in this format.
    """
    cores: set[int] = set()
    for part in text.strip().split(","):
        # A part is a range such as "0-3", or a single core such as "8".
        first, dash, last = part.partition("-")
        begin = hardware.parse_number(first)
        end = hardware.parse_number(last) if dash else begin
        if begin is None or end is None or not begin <= end < _MAX_CORES:
            return None
        cores.update(range(begin, end + 1))
    return tuple(sorted(cores))


def physical_cores(ids: Collection[int], root: str = "/") -> list[tuple[int, ...]]:
    """Group the logical cores `ids` by physical core: return one tuple of hyper-threads per physical core.

    The groups are ordered by the lowest logical core of the physical core.
    """
    threads_of_core: dict[int, list[int]] = {}
    for logical_core in sorted(ids):
        file = (
            f"/sys/devices/system/cpu/cpu{logical_core}/topology/thread_siblings_list"
        )
        siblings = parse_ranges(hardware.read_text(file, root))
        if (
            not siblings
        ):  # Without the file, each logical core counts as a physical core.
            siblings = (logical_core,)
        threads_of_core.setdefault(min(siblings), []).append(logical_core)
    return [tuple(threads_of_core[core]) for core in sorted(threads_of_core)]


def format_ranges(cores: Sequence[int]) -> str:
    """Format sorted core numbers in the Linux kernel's format: `(0, 1, 2, 3, 8)` gives `"0-3,8"`."""
    groups: list[list[int]] = []  # The numbers in each group are consecutive.
    for core in cores:
        if groups and core == groups[-1][-1] + 1:
            groups[-1].append(core)
        else:
            groups.append([core])
    texts = []
    for group in groups:
        first, last = group[0], group[-1]
        texts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(texts)
