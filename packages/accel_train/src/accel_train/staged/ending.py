"""The end of a group over gloo: its threads must have dropped the tensors before anybody waits for them."""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["wait_for_gloo"]

#: Seconds; a thread that waits for another rank sleeps, and is not waited for.
_PATIENCE = 60.0
#: Longer than the 5 ms after which a thread that waits for Python's lock asks for it again.
_PAUSE = 0.01


def wait_for_gloo() -> None:
    """Wait until gloo's threads rest. Linux tells that, by the name that torch 2.11 and newer give them.

    They drop their tensors after the collective has ended, and need Python's lock for it. The last holder of
    a group waits for these threads, and DistributedDataParallel's reducer does so with that lock
    (pytorch#56297); a thread that comes after Python's end aborts the process (pytorch#190489).
    """
    end = time.monotonic() + _PATIENCE
    while any(_states()) and time.monotonic() < end:
        time.sleep(_PAUSE)
        if all(state == "S" for state in _states()):
            return


def _states() -> Iterator[str]:
    """Yield the state of each of gloo's threads: `S` sleeps, `R` runs or waits for a processor."""
    for path in glob.iglob("/proc/self/task/*/stat"):
        with suppress(OSError):  # that thread has ended
            name, _, rest = Path(path).read_text("ascii", "replace").rpartition(")")
            if "gloo" in name:
                yield rest.split()[0]
