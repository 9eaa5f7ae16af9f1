"""Causes of a failed compile, by the compiler's output, each with the next step."""

from __future__ import annotations

import re

__all__ = ["next_step"]

#: What the output holds, by cause; the first that fits counts.
_CAUSES = (
    (
        r"Python\.h: no such file|Python\.h' file not found",
        "Python's headers are missing: install python3-dev or python3-devel",
    ),
    (
        r"no space left on device|disk quota exceeded",
        "the disk is full: free space, or set ACCEL_CACHE, TORCH_EXTENSIONS_DIR and TMPDIR to other folders",
    ),
    (
        r"out of memory|cannot allocate memory|virtual memory exhausted|bad_alloc|killed signal|signal 9",
        "the machine ran out of memory: set MAX_JOBS=1, so that one compiler runs at a time",
    ),
    (
        r"ninja is required|ninja: (command )?not found",
        "ninja is missing: pip install ninja",
    ),
    (
        r"(\+\+|clang|cc)'?: (command )?not found|cannot execute .?cc1plus|error trying to exec",
        "the C++ compiler is missing or incomplete: install one, such as g++",
    ),
    (
        r"version .(GLIBC|GLIBCXX|CXXABI)_[\d.]+'? not found",
        "the compiler is for newer system libraries than this Python uses: set CXX to one of its environment",
    ),
    (
        r"undefined symbol: \S*(3c10|2at|5torch)",
        "it was built for another torch: remove its folder, so that it is built again",
    ),
)


def next_step(output: str) -> str:
    """Return the cause of a failed compile and the next step, as one clause; empty if it is unknown."""
    return next(
        (step for cause, step in _CAUSES if re.search(cause, output, re.IGNORECASE)), ""
    )
