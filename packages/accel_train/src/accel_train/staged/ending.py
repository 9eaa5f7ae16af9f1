"""Wait for gloo's threads before a process group ends, because they must release their tensors first."""

from __future__ import annotations

import glob
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["wait_for_gloo"]

#: The time limit of the wait, in seconds. A thread that waits for another rank sleeps and is not awaited.
_TIMEOUT = 60.0
#: The kernel's letter for a thread that sleeps (man 5 proc_pid_stat).
_SLEEPING = "S"
#: Seconds between two checks. A thread that waits for Python's lock (GIL) requests it again after 5 ms, so
#: the interval is longer.
_POLL_INTERVAL = 0.01


def wait_for_gloo() -> None:
    """Wait until all of gloo's threads sleep, for at most 60 seconds.

    This works on Linux with torch 2.11 or newer, which names the threads. Elsewhere, the function returns
    immediately.

    After a collective has ended, gloo's threads release their tensors, for which they need Python's global
    lock (GIL). When DistributedDataParallel's reducer releases the last reference to a group, the reducer
    waits for the threads while it holds the lock, so the process deadlocks (pytorch#56297). If a thread needs
    the lock after Python has shut down, the process aborts (pytorch#190489).
    """
    end = time.monotonic() + _TIMEOUT
    has_gloo_threads = bool(_gloo_thread_states())
    while has_gloo_threads and time.monotonic() < end:
        time.sleep(_POLL_INTERVAL)
        states = _gloo_thread_states()
        if all(state == _SLEEPING for state in states):  # Also if no thread is left.
            return


def _gloo_thread_states() -> list[str]:
    """Return Linux's state of each gloo thread, such as `S` (sleeping) or `R` (running or runnable)."""
    states = []
    for path in glob.iglob("/proc/self/task/*/stat"):
        with suppress(OSError):  # Raised if the thread has ended.
            # The form is `ID (NAME) STATE ...`. NAME may contain parentheses.
            text = Path(path).read_text("ascii", "replace")
            id_and_name, _, state_and_others = text.rpartition(")")
            if "gloo" in id_and_name:
                state, *_others = state_and_others.split()
                states.append(state)
    return states
