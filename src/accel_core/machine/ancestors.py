"""Where a variable of this process comes from: which process above it had it first.

A kernel tells what a process was started with, not what it has set since; so whoever wrote a variable is the
parent of the first that was started with it.
"""

from __future__ import annotations

import os

from accel_core.machine import host

__all__ = ["origin_of_variable"]

#: No process has more above it; also ends a walk over files that lie.
_MOST = 64


def origin_of_variable(name: str, value: str, root: str = "/", pid: int | None = None) -> str:
    """The first process with it, and who gave it: `"process 42 (raylet), started by process 1 (bash)"`.

    Empty where /proc tells nothing, or this process was not started with that value. `pid`: the process
    whose variable it is, in place of this one.
    """
    at = os.getpid() if pid is None else pid
    first = above = 0
    for _ in range(_MOST):
        if f"{name}={value}" not in host.read_text(f"/proc/{at}/environ", root).split("\0"):
            above = at
            break
        first, at = at, _parent(at, root)
        if at == 0:
            break
    if not first:
        return ""
    giver = f", started by process {above} ({_command(above, root)})" if above else ""
    return f"process {first} ({_command(first, root)}){giver}"


def _parent(pid: int, root: str) -> int:
    """The pid of the parent; 0 where there is none, or none can be told."""
    for line in host.read_text(f"/proc/{pid}/status", root).splitlines():
        if line.startswith("PPid:"):
            return host.parse_number(line.partition(":")[2].strip()) or 0
    return 0


def _command(pid: int, root: str) -> str:
    return host.read_text(f"/proc/{pid}/comm", root) or "not known"
