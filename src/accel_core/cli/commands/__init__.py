"""The commands of `accel`, a module each: the command `accel why` is `why.command`."""

from __future__ import annotations

__all__ = ["SUMMARIES"]

#: Each command and its line in `accel --help`, which is the first sentence of its own help: a list that can
#: be shown without importing them.
SUMMARIES = {
    "bench": "Measure how fast the chosen accelerator, or NAME, is.",
    "completion": "Print the script for shell completion.",
    "deepspeed": "Start a script's ranks with DeepSpeed's launcher, on the chosen accelerator.",
    "doctor": "Say what is wrong with the accelerators here, or with each NAME, and what to do.",
    "env": "Print the variables that ranks on other hosts need, for the chosen accelerator or NAME.",
    "info": "Show what the chosen accelerator, or NAME, is and can do.",
    "list": "List the backends: what can be used here, and why not the others.",
    "new": "Write a plugin distribution for a device of your own.",
    "ops": "List the operators of the chosen accelerator, and who provides each.",
    "run": "Start the ranks of a script on this host, as torchrun does.",
    "simulate": "Run a command whose Python processes have simulated devices, for tests.",
    "verify": "Check that the chosen accelerator, or NAME, keeps what the interface promises.",
    "why": "Say what would be chosen and why each other is not.",
}
