"""The commands of `accel` for those who make an accelerator, or test code for one."""

from __future__ import annotations

__all__ = ["SUMMARIES"]

#: Each command and its line in `accel --help`, which is the first sentence of its own help.
SUMMARIES = {
    "new": "Write a plugin distribution for a device of your own.",
    "simulate": "Run a command whose Python processes have simulated devices, for tests.",
    "try": "Run a command on a vendor's released package where its device is missing.",
    "verify": "Check that the chosen accelerator, or NAME, keeps what the interface promises.",
}
