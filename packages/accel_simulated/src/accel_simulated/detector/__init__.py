"""Find vendor-specific code outside torch in a program that runs on a simulated device.

`accel simulate --report cuda.md acme -- COMMAND` uses this package. `command` starts the command, and `merge`
combines the files that the command's processes wrote. The environment variable `RECORD_FOLDER_VARIABLE` names
the folder for those files. If the variable is set, each process imports `recording` when Python starts. If it
is not set, nothing in this package is imported.
"""

from __future__ import annotations

__all__ = ["RECORD_FOLDER_VARIABLE"]

#: The folder in which each process of a recorded run has its own file.
RECORD_FOLDER_VARIABLE = "ACCEL_SIMULATE_RECORD"
