"""Find the processes that have a device node open, because some devices serve only one process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

#: The maximum number of processes that a clause names; the others are counted.
_MAX_NAMES = 3


def describe_holders(nodes: Sequence[str]) -> str:
    """Return a clause about the other processes that have a device node open, or an empty string.

    Only processes are found whose open files this user may see. None is found if psutil cannot be imported.
    """
    try:
        import psutil
    except ImportError:  # The cause may be the one that the doctor is looking for.
        return ""
    descriptions = []
    for process in psutil.process_iter(["pid", "name"]):
        pid = process.info["pid"]
        node = next((n for n in _open_nodes(pid) if n in nodes), "")
        if node and pid != os.getpid():
            descriptions.append(f"{pid} ({process.info['name']}) has {node} open")
    if not descriptions:
        return ""
    clause = f"process {', process '.join(descriptions[:_MAX_NAMES])}"
    others = len(descriptions) - _MAX_NAMES
    if others > 0:
        clause += f" and {others} more"
    return clause


def _open_nodes(pid: int) -> Iterator[str]:
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
