"""This process's memory, as the operating system reports it."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["PeakMemory", "memory", "resident"]

_STATUS = Path("/proc/self/status")
_MEMORY = Path("/proc/meminfo")
_CLEAR = Path("/proc/self/clear_refs")


def resident() -> int:
    """Bytes of this process in memory now."""
    try:
        return _counted(_STATUS)["VmRSS"]
    except (OSError, KeyError):  # not Linux
        return int(_process(os.getpid()).memory_info().rss)


def memory() -> tuple[int, int]:
    """Bytes of memory that this machine has, and those that are available without swapping."""
    try:
        counted = _counted(_MEMORY)
        return counted["MemTotal"], counted["MemAvailable"]
    except (OSError, KeyError):
        import psutil

        found = psutil.virtual_memory()
        return int(found.total), int(found.available)


def _counted(file: Path) -> dict[str, int]:
    """The lines `Name:  123 kB` of a file of Linux's /proc, in bytes."""
    lines = (line.split() for line in file.read_text().splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(number) * 1024 for name, number, _ in lines}


@functools.lru_cache(maxsize=1)
def _process(pid: int) -> Any:
    import psutil  # a dependency where the system has no /proc

    return psutil.Process(pid)


def high_water() -> int:
    """The most bytes that this process ever had in memory as the system counts; 0 where it does not."""
    try:
        return _counted(_STATUS)["VmHWM"]
    except (OSError, KeyError):
        pass  # not Linux; some containers' kernels do not count it
    peak = getattr(_process(os.getpid()).memory_info(), "peak_wset", None)  # Windows
    return _maximum_resident() if peak is None else int(peak)


def _maximum_resident() -> int:
    try:
        import resource
    except ImportError:
        return 0
    # macOS counts bytes, the others kibibytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class PeakMemory:
    """The peak of resident memory since the process began, or since `reset`.

    Linux keeps a high-water mark and lets a process start it again, which catches peaks between two
    questions. Where it may not be started again, a peak above the old mark is still seen exactly, and
    one below it only as far as somebody asked at the time.
    """

    def __init__(self) -> None:
        self._floor = 0
        self._sampled = 0

    def sample(self) -> int:
        """Bytes in memory now, noted for the peak."""
        now = resident()
        self._sampled = max(self._sampled, now)
        return now

    def peak(self) -> int:
        """The peak in bytes."""
        self.sample()
        mark = high_water()
        return max(mark, self._sampled) if mark > self._floor else self._sampled

    def reset(self) -> None:
        """Start again from what is in memory now."""
        try:
            _CLEAR.write_text("5")  # man 5 proc: resets the peak resident set size
            self._floor = 0
        except OSError:  # not Linux, or not permitted here
            self._floor = high_water()
        self._sampled = resident()
