"""The commands of `accel` that look into a machine."""

from __future__ import annotations

__all__ = ["SUMMARIES"]

#: Each command and its line in `accel --help`, which is the first sentence of its own help.
SUMMARIES = {
    "bench": "Measure how fast the chosen accelerator, or NAME, is.",
    "doctor": "Say what is wrong with the accelerators here, or with each NAME, and what to do.",
    "info": "Show what the chosen accelerator, or NAME, is and can do.",
}
