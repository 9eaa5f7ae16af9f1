"""The computer, seen without torch and without any vendor's package.

Here: files, platform, NUMA nodes, processor cores, control groups. Every function takes `root`, the
folder under which `/sys`, `/proc` and the rest are looked for. What cannot be read or understood counts as
absent.
"""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import PurePosixPath
from stat import S_ISREG

# --- Files and platform --------------------------------------------------------------------------------


def read_text(path: str, root: str = "/") -> str:
    """Return the stripped text of a small file (`"/proc/self/cgroup"`); empty if it cannot be read."""
    with suppress(OSError, ValueError):  # ValueError: a NUL in the path
        # A tree from elsewhere may hold a FIFO, or a link to `/dev/zero`.
        if S_ISREG(os.stat(file := below(root, path)).st_mode):
            with FileIO(file) as opened:  # not `open`, which takes twice as long: the bus has hundreds
                return opened.readall().decode("utf-8", "replace").strip()
    return ""


def names_in(folder: str, root: str = "/") -> list[str]:
    """Return the names in a folder, unsorted; none if it cannot be listed."""
    with suppress(OSError, ValueError):
        return os.listdir(below(root, folder))
    return []


def path_exists(path: str, root: str = "/") -> bool:
    """Whether the file or folder `path` exists (`"/proc/driver/nvidia/version"`); links are followed."""
    return "\0" not in path and os.access(below(root, path), os.F_OK)


def below(root: str, path: str) -> str:
    """Return the path of the machine's file `path` below `root`."""
    return path if root == "/" else os.path.join(root, path.lstrip("/"))


def on_linux() -> bool:
    """Whether this system has Linux's `/sys`, `/proc` and `/dev`."""
    return sys.platform.startswith("linux")


def platform_matches(platforms: tuple[str, ...]) -> bool:
    """Whether this system is one of `Hardware.platforms`: `"linux"`, `"darwin-arm64"`; an empty tuple means
    any.
    """
    wanted = tuple(platform.lower() for platform in platforms)
    if not wanted or sys.platform.startswith(wanted):
        return True
    if not any(platform.startswith(f"{sys.platform}-") for platform in wanted):
        return False
    from platform import machine  # only here: the import costs more than this whole module

    return f"{sys.platform}-{machine()}".lower().startswith(wanted)


# --- NUMA nodes and cores ------------------------------------------------------------------------------

_NODES = "/sys/devices/system/node"


def numa_node_count(root: str = "/") -> int:
    """Return the number of NUMA nodes with cores, at least 1; nodes with memory only (CXL, HBM) do
    not count.
    """
    numbered = (n for n in names_in(_NODES, root) if n.startswith("node") and n[4:].isdigit())
    return max(1, sum(bool(read_text(f"{_NODES}/{name}/cpulist", root).strip()) for name in numbered))


def allowed_cores() -> frozenset[int] | None:
    """Return the logical cores that this process may use, cpusets included; `None` if it cannot be bound."""
    if not hasattr(os, "sched_getaffinity") or not hasattr(os, "sched_setaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0))


def usable_cores() -> int:
    """Return how many cores this process can keep busy, at least 1: those it may use, within its
    CPU quota.
    """
    allowed = allowed_cores()
    count = len(allowed) if allowed else os.cpu_count() or 1
    quota = cgroup_cpu_quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def parse_number(text: str) -> int | None:
    """The number in `text`; `None` for other text, and for a number of 19 digits.

    Such a one is how version 1 of control groups writes that there is no limit on memory.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


# --- Control groups ------------------------------------------------------------------------------------
# https://docs.kernel.org/admin-guide/cgroup-v2.html, and of version 1 cgroup-v1/memory.html there and
# https://docs.kernel.org/scheduler/sched-bwc.html


def cgroup_memory_limit(root: str = "/") -> int | None:
    """Return the bytes that this process's control groups allow: the smallest limit of its group and those
    above.

    `None` if no group has a limit.
    """
    return min((limit for limit, _ in _memory_limits(root)), default=None)


def cgroup_memory_available(root: str = "/") -> int | None:
    """Bytes left below the limits, in the group that has least left; `None` without a limit.

    That need not be the group with the smallest limit: its parent may be full with the use of others. File
    cache that the kernel gives back under pressure is not in use, as for `docker stats`: counted, a container
    that had read a large data set would look full.
    """
    return min((max(0, limit - used) for limit, used in _memory_limits(root)), default=None)


def cgroup_cpu_quota(root: str = "/") -> float | None:
    """Return how many cores' time the control groups allow: the smallest quota of its group and those above.

    `None` if no group has a quota.
    """
    quotas = (_cpu_quota(version, folder, root) for version, folder in _groups("cpu", root))
    return min((quota for quota in quotas if quota is not None), default=None)


def _cpu_quota(version: int, folder: str, root: str) -> float | None:
    """Microseconds of a core in each period, divided by the period; no limit is `max` or -1."""
    if version == 2:
        time, _, period = read_text(f"{folder}/cpu.max", root).partition(" ")
    else:
        time = read_text(f"{folder}/cpu.cfs_quota_us", root)
        period = read_text(f"{folder}/cpu.cfs_period_us", root)
    allowed, whole = parse_number(time), parse_number(period)
    return allowed / whole if allowed is not None and whole else None


#: Of each version: the files of the limit and of the use, and the file cache's name in memory.stat.
_MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def _memory_limits(root: str) -> Iterator[tuple[int, int]]:
    """`(limit, used)` of every group above this process that has a limit on memory."""
    for version, folder in _groups("memory", root):
        limit_file, usage_file, cache = _MEMORY_FILES[version]
        if (limit := parse_number(read_text(f"{folder}/{limit_file}", root))) is not None:
            usage = parse_number(read_text(f"{folder}/{usage_file}", root)) or 0
            statistics = read_text(f"{folder}/memory.stat", root).splitlines()
            values = dict(line.partition(" ")[::2] for line in statistics)
            yield limit, max(0, usage - (parse_number(values.get(cache, "")) or 0))


def _groups(controller: str, root: str) -> Iterator[tuple[int, str]]:
    """`(version, folder)` of this process's group under `controller`, and of the folders above it.

    Both versions are looked at: on a hybrid system only one of them has the controller's files. In a
    container the path is often the host's, and the mounted group is the process's own: of the folders those
    that are there count. A path with `..` leads out of what is mounted.
    """
    for line in read_text("/proc/self/cgroup", root).splitlines() if on_linux() else ():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")  # version 2 names none
        if not controllers or controller in controllers.split(","):
            group = PurePosixPath("/sys/fs/cgroup", controllers, "" if "/.." in path else path.strip("/"))
            for folder in (group, *group.parents):
                yield 1 if controllers else 2, str(folder)
