"""Find code outside torch that is written for one vendor, in a program that runs on a simulated device.

`accel simulate --report cuda.md acme -- COMMAND` uses it. `command` starts the command, and `merge` joins the
files that its processes wrote. In each process `recording` is imported when Python starts, because `VARIABLE`
names the folder to write into. Without that variable nothing of this package is imported.
"""

from __future__ import annotations

__all__ = ["VARIABLE"]

#: The folder in which each process of a recorded run has its own file.
VARIABLE = "ACCEL_SIMULATE_RECORD"
