"""Find code outside torch that is written for one vendor, in a program that runs on a simulated device.

`accel simulate --report cuda.md acme -- COMMAND` uses this package. `command` starts the command, and `merge`
joins the files that the command's processes wrote. Each process imports `recording` when Python starts if the
variable `VARIABLE` is set, which names the folder to write into. If the variable is not set, nothing in this
package is imported.
"""

from __future__ import annotations

__all__ = ["VARIABLE"]

#: The folder in which each process of a recorded run has its own file.
VARIABLE = "ACCEL_SIMULATE_RECORD"
