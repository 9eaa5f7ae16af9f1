"""The detector: which places outside torch are written for one vendor, found while another is simulated.

`accel simulate --report cuda.md acme -- COMMAND` asks for it. `command` starts the command and joins what
its processes wrote; in each of those `recording` is imported at Python's start, because `VARIABLE` names the
folder to write into. Without that variable nothing of this package is imported.
"""

from __future__ import annotations

__all__ = ["VARIABLE"]

#: The folder in which each process of a recorded run has a file of its own.
VARIABLE = "ACCEL_SIMULATE_RECORD"
