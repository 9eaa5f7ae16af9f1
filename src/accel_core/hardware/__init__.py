"""Read facts about the computer without torch and without a vendor's package.

This module reads files, the platform, NUMA nodes, CPU cores and cgroups. Every function
that takes `root` looks for `/sys`, `/proc` and other folders below that folder. A file
that cannot be read or parsed counts as absent.
"""

import math
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePosixPath

# --- Files and platform -------------------------------------------------------------


def read_text(path: str, root: str = "/") -> str:
    """Return the stripped text of a small file, or an empty string if the file cannot be read.

    `path` is absolute, for example `"/proc/self/cgroup"`.
    """
    file = under_root(root, path)
    # A folder that was copied from another machine may contain a FIFO or a link to
    # `/dev/zero`.
    if not os.path.isfile(file):
        return ""
    with suppress(OSError), open(file, "rb") as stream:
        return stream.read().decode("utf-8", "replace").strip()
    return ""


def names_in(folder: str, root: str = "/") -> list[str]:
    """List the names in a folder, unsorted, or an empty list if the folder cannot be read."""
    # A NUL in the path raises a ValueError.
    with suppress(OSError, ValueError):
        return os.listdir(under_root(root, folder))
    return []


def path_exists(path: str, root: str = "/") -> bool:
    """Return whether a file or folder exists, following symbolic links."""
    return os.path.exists(under_root(root, path))


def under_root(root: str, path: str) -> str:
    """Return the path below the folder `root` that corresponds to the absolute `path`."""
    if root == "/":
        return path
    return os.path.join(root, path.lstrip("/"))


def on_linux() -> bool:
    """Return whether this system is Linux, with its `/sys`, `/proc` and `/dev`."""
    return sys.platform.startswith("linux")


def platform_matches(platforms: tuple[str, ...]) -> bool:
    """Return whether this system is one of `Hardware.platforms`.

    An entry is a system (`"linux"`), or a system and a machine (`"darwin-arm64"`). An
    empty tuple matches every system.
    """
    if not platforms:
        return True
    this_platform = f"{sys.platform}-{platform.machine()}".lower()
    return this_platform.startswith(tuple(name.lower() for name in platforms))


# --- NUMA nodes and cores -----------------------------------------------------------

_NODES = "/sys/devices/system/node"


def numa_node_count(root: str = "/") -> int:
    """Return the number of NUMA nodes that have CPU cores, at least 1.

    A node that has only memory (CXL, HBM) does not count.
    """
    count = 0
    for name in names_in(_NODES, root):
        is_node = re.fullmatch("node[0-9]+", name)
        # The list is empty if the node has only memory.
        if is_node and read_text(f"{_NODES}/{name}/cpulist", root):
            count += 1
    return max(1, count)


def allowed_cores() -> frozenset[int] | None:
    """Return the logical cores that the cpuset and CPU affinity of this process allow it to use.

    The result is `None` if processes cannot be bound to cores on this system.
    """
    # The callers bind processes to these cores, so a system must offer both functions.
    if not hasattr(os, "sched_getaffinity") or not hasattr(os, "sched_setaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0))


def usable_cores() -> int:
    """Return the number of CPU cores that this process can keep busy, at least 1.

    The allowed cores and the CPU quota limit the number.
    """
    allowed = allowed_cores()
    if allowed:
        count = len(allowed)
    else:
        count = os.cpu_count() or 1  # None means that the number is unknown.
    quota = cgroup_cpu_quota()
    if quota is not None:
        count = min(count, math.ceil(quota))
    return max(1, count)


def parse_number(text: str) -> int | None:
    """Parse a decimal number of at most 18 digits, or return `None` for any other text."""
    # cgroup v1 represents "no memory limit" by a number of 19 digits.
    if re.fullmatch("[0-9]{1,18}", text):
        return int(text)
    return None


# --- Control groups -----------------------------------------------------------------
# Version 2: https://docs.kernel.org/admin-guide/cgroup-v2.html
# Version 1: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html and
# https://docs.kernel.org/scheduler/sched-bwc.html


def cgroup_memory_limit(root: str = "/") -> int | None:
    """Return the smallest memory limit of this process's cgroups, in bytes.

    The result is `None` if no cgroup has a limit.
    """
    limits = [limit for limit, _ in _memory_limits(root)]
    return min(limits, default=None)


def cgroup_memory_available(root: str = "/") -> int | None:
    """Return the memory, in bytes, that this process's cgroups still allow it to use.

    The result is `None` if no cgroup has a limit. A process is in nested cgroups, and
    the one with the least free memory counts. It need not be the one with the smallest
    limit, because other processes may have filled a parent. File cache counts as free,
    as in `docker stats`, because the kernel frees it under memory pressure.
    """
    free_bytes = [max(0, limit - used) for limit, used in _memory_limits(root)]
    return min(free_bytes, default=None)


def cgroup_memory_kills(root: str = "/") -> int:
    """Return the number of processes that the kernel killed for lack of memory in this
    process's cgroups.

    In cgroup v2, a cgroup also reports the kills in the cgroups below it, so one kill
    can count more than once.
    """
    file_by_version = {1: "memory.oom_control", 2: "memory.events"}
    kills = 0
    for version, folder in _control_groups("memory", root):
        kills += _statistic("oom_kill", f"{folder}/{file_by_version[version]}", root)
    return kills


def cgroup_process_limit(needed: int, root: str = "/") -> int | None:
    """Return the limit that prevents the start of `needed` more processes and threads.

    Each cgroup of this process may limit the number of processes and threads. The
    result is `None` if every limit allows the start.
    """
    for _version, folder in _control_groups("pids", root):
        limit = parse_number(read_text(f"{folder}/pids.max", root))
        used = parse_number(read_text(f"{folder}/pids.current", root)) or 0
        if limit is not None and used + needed > limit:
            return limit
    return None


def cgroup_cpu_quota(root: str = "/") -> float | None:
    """Return the smallest CPU quota of this process's cgroups, in cores, such as 1.5.

    The result is `None` if no cgroup has a quota.
    """
    quotas = []
    for version, folder in _control_groups("cpu", root):
        quota = _cpu_quota(version, folder, root)
        if quota is not None:
            quotas.append(quota)
    return min(quotas, default=None)


def _cpu_quota(version: int, folder: str, root: str) -> float | None:
    """Return a cgroup's CPU quota in cores: its CPU time per period, divided by the period.

    The result is `None` if the cgroup has no quota, which the kernel writes as `max` or
    -1.
    """
    if version == 2:
        # The file contains both, such as "150000 100000".
        time, _, period = read_text(f"{folder}/cpu.max", root).partition(" ")
    else:
        time = read_text(f"{folder}/cpu.cfs_quota_us", root)
        period = read_text(f"{folder}/cpu.cfs_period_us", root)
    # A time of "max" or "-1", which means no quota, is not parsed as a number.
    allowed_time = parse_number(time)
    period_length = parse_number(period)
    if allowed_time is None or not period_length:
        return None
    return allowed_time / period_length


#: For each cgroup version: the file with the limit in bytes, the file with the used
#: bytes, and the name of the file cache in `memory.stat`.
_MEMORY_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def _memory_limits(root: str) -> Iterator[tuple[int, int]]:
    """Yield `(limit, used)`, in bytes, of each cgroup that has a memory limit."""
    for version, folder in _control_groups("memory", root):
        limit_file, usage_file, cache_name = _MEMORY_FILES[version]
        limit = parse_number(read_text(f"{folder}/{limit_file}", root))
        if limit is not None:
            usage = parse_number(read_text(f"{folder}/{usage_file}", root)) or 0
            # The kernel frees the file cache if memory is needed.
            cache = _statistic(cache_name, f"{folder}/memory.stat", root)
            yield limit, max(0, usage - cache)


def _statistic(name: str, file: str, root: str) -> int:
    """Return the number on the line of `file` that begins with `name`, or 0 if there is
    no such line.
    """
    for line in read_text(file, root).splitlines():
        first_word, _, value = line.partition(" ")
        if first_word == name:
            return parse_number(value) or 0
    return 0


def _control_groups(controller: str, root: str) -> Iterator[tuple[int, str]]:
    """Yield `(version, folder)` for this process's cgroup and for each cgroup above it.

    Both versions are read, because a hybrid system has a controller's files in only one
    of them. In a container, the path is often the host's path, while the mounted cgroup
    is that of the process. A folder that does not exist yields no values when its files
    are read.
    """
    if not on_linux():
        return
    for line in read_text("/proc/self/cgroup", root).splitlines():
        # A line is "hierarchy:controllers:path".
        _, _, controllers_and_path = line.partition(":")
        controllers, _, path = controllers_and_path.partition(":")
        # Version 2 has one hierarchy for all controllers and names none of them.
        if controllers and controller not in controllers.split(","):
            continue
        version = 1 if controllers else 2
        if "/.." in path:  # The path leaves the mounted hierarchy.
            path = ""
        folder = PurePosixPath("/sys/fs/cgroup", controllers, path.strip("/"))
        yield version, str(folder)
        for parent in folder.parents:  # The limits of a parent apply too.
            yield version, str(parent)
