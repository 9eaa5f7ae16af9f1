"""The commands of `accel` for people who write an accelerator, or code that must run on one."""

from __future__ import annotations

__all__ = ["SUMMARIES"]

#: Each command and its line in `accel --help`, which is the first sentence of its own help.
SUMMARIES = {
    "new": "Write a plugin distribution for a device of your own.",
    "simulate": "Run a command with simulated devices, for tests.",
    "try": "Run a command on a vendor's package without its device.",
    "verify": "Check the accelerator, or NAME, against the interface.",
}
