"""The commands of `accel` for those who train."""

from __future__ import annotations

__all__ = ["SUMMARIES"]

#: Each command and its line in `accel --help`, which is the first sentence of its own help.
SUMMARIES = {
    "deepspeed": "Start a script's ranks with DeepSpeed's launcher, on the chosen accelerator.",
    "env": "Print the variables that ranks on other hosts need, for the chosen accelerator or NAME.",
    "ops": "List the operators of the chosen accelerator, and who provides each.",
    "run": "Start the ranks of a script on this host, as torchrun does.",
}
