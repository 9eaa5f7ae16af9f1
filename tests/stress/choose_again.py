"""Chooses CHOOSE_WARM times, then CHOOSE_COUNT times: what the process has before and after, and the seconds.

`test_load.py` runs it.
"""

import gc
import json
import os
import resource
import time
from pathlib import Path

import accel_core


def possessions():
    """Memory, open files, threads and children of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {
        "memory": pages * resource.getpagesize(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "children": len(children),
    }


def choose(times):
    for _ in range(times):
        accel_core.set_accelerator(None)
        name = accel_core.get_accelerator().name
        assert name == "mlu", accel_core.selection().to_dict()["verdicts"]


choose(int(os.environ["CHOOSE_WARM"]))
before = possessions()
began = time.monotonic()
choose(int(os.environ["CHOOSE_COUNT"]))
print(json.dumps([before, possessions(), time.monotonic() - began]))
