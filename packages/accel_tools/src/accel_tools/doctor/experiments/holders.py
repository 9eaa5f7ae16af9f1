"""Find the processes that have a device node open, because some devices serve only one process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

#: The maximum number of processes that a clause names; the others are counted.
_MAX_NAMES = 3


def describe_holders(nodes: Sequence[str]) -> str:
    """Return a clause that names other processes with one of the device nodes open, or an empty string.

    Processes whose open files this user may not see are left out. The string is empty if psutil cannot be
    imported.
    """
    try:
        import psutil
    except ImportError:  # It may fail for the same reason as the examined program.
        return ""
    descriptions = []
    try:
        processes = list(psutil.process_iter(["pid", "name"]))
    except (psutil.Error, OSError, IndexError):  # For example, /proc is empty.
        return ""
    for process in processes:
        pid, name = process.info["pid"], process.info["name"]
        open_nodes = [node for node in _open_devices(pid) if node in nodes]
        if open_nodes and pid != os.getpid():
            descriptions.append(f"process {pid} ({name}) has {open_nodes[0]} open")
    clause = ", ".join(descriptions[:_MAX_NAMES])
    others = len(descriptions) - _MAX_NAMES
    if others > 0:
        clause += f" and {others} more"
    return clause


def _open_devices(pid: int) -> Iterator[str]:
    """Yield the paths of the devices that a process has open, on Linux."""
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:  # The process has ended, or belongs to another user.
        return
    for descriptor in descriptors:
        try:
            target = os.readlink(f"{folder}/{descriptor}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith("/dev/"):
            yield target
