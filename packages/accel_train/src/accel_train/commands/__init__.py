"""The `accel` commands for training."""

from __future__ import annotations

__all__ = ["SUMMARIES"]

#: Each command's line in `accel --help`, which equals the first sentence of the command's own help.
SUMMARIES = {
    "deepspeed": "Start a script's ranks with DeepSpeed's launcher.",
    "env": "Print the environment variables that ranks on other hosts need.",
    "frameworks": "Show how well the installed frameworks support the accelerator.",
    "ops": "List the operators of a backend, and who provides each.",
    "run": "Launch one process per device on this host, like torchrun.",
}
