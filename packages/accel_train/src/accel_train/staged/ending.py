"""Wait for gloo's threads before a group ends, as these threads must have dropped their tensors by then."""

from __future__ import annotations

import glob
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["wait_for_gloo"]

#: Most seconds to wait. A thread that waits for another rank sleeps, and is not waited for.
_TIMEOUT = 60.0
#: Seconds between two looks: longer than the 5 ms after which a waiting thread asks for Python's lock again.
_POLL_INTERVAL = 0.01


def wait_for_gloo() -> None:
    """Wait until all of gloo's threads sleep, for 60 seconds at most.

    Works on Linux with torch 2.11 or newer, which names the threads; returns at once elsewhere. The threads
    drop their tensors after a collective has ended, and need Python's lock for it. Whoever drops the last
    reference to a group waits for these threads; DistributedDataParallel's reducer does so while it holds
    that lock (pytorch#56297). A thread that needs the lock after Python's end aborts the process
    (pytorch#190489).
    """
    end = time.monotonic() + _TIMEOUT
    while any(_gloo_thread_states()) and time.monotonic() < end:
        time.sleep(_POLL_INTERVAL)
        if all(state == "S" for state in _gloo_thread_states()):
            return


def _gloo_thread_states() -> Iterator[str]:
    """Yield the state of each of gloo's threads, as Linux writes it: `S` sleeps, `R` runs or waits."""
    for path in glob.iglob("/proc/self/task/*/stat"):
        with suppress(OSError):  # the thread has ended
            name, _, rest = Path(path).read_text("ascii", "replace").rpartition(")")
            if "gloo" in name:
                yield rest.split()[0]
