"""The commands of `accel` for authors of accelerator plugins, and of code that must run on accelerators."""

from __future__ import annotations

__all__ = ["SUMMARIES"]

#: Each command's line in `accel --help`, which is also the first sentence of the command's help.
SUMMARIES = {
    "new": "Write a plugin distribution for your device.",
    "simulate": "Run a command with simulated devices, for tests.",
    "try": "Run a command on a vendor's package, without a device.",
    "verify": "Run the conformance checks on the accelerator or NAME.",
}
