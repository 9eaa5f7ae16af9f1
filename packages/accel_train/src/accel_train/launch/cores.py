"""Processor cores as ranks share them: hyper-threads together; lists of cores as the kernel writes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from accel_core.probing import host

__all__ = ["format_ranges", "physical_cores"]


def physical_cores(ids: Collection[int], root: str = "/") -> list[tuple[int, ...]]:
    """Those of the logical cores `ids` that are hyper-threads of one core together, ordered by the first."""
    cores: dict[int, list[int]] = {}
    for core in sorted(ids):
        file = f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        siblings = host.parse_ranges(host.read_text(file, root)) or (core,)
        cores.setdefault(min(siblings), []).append(core)
    return [tuple(threads) for _, threads in sorted(cores.items())]


def format_ranges(cores: Sequence[int]) -> str:
    """`"0-3,8"` for sorted numbers."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
