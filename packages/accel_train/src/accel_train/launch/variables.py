"""The environment variables that launchers set for ranks: those of torchrun and of accel-train."""

from __future__ import annotations

from accel_core.settings import Variable, parse_whole_number

__all__ = [
    "ACCEL_COMMUNICATION_BACKEND",
    "ACCEL_UNUSED",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "WORLD_SIZE",
]

RANK = Variable("RANK", parse_whole_number, 0)
WORLD_SIZE = Variable("WORLD_SIZE", parse_whole_number, 1)
LOCAL_RANK = Variable("LOCAL_RANK", parse_whole_number, 0)
LOCAL_WORLD_SIZE = Variable("LOCAL_WORLD_SIZE", parse_whole_number, 1)
MASTER_ADDR = Variable("MASTER_ADDR", str, "")
MASTER_PORT = Variable("MASTER_PORT", parse_whole_number, 0)
#: The communication backend for the ranks, which `accel run` sets.
ACCEL_COMMUNICATION_BACKEND = Variable("ACCEL_COMMUNICATION_BACKEND", str, "")


def _parse_ignore(text: str) -> bool:
    """Return True if `text` is `ignore`. Raises `ValueError` if it is anything else."""
    if text.lower() != "ignore":
        # The error's text is the expected value, for the message about the variable.
        raise ValueError("ignore")
    return True


#: With the value `ignore`, no warning about an unused accelerator is printed.
ACCEL_UNUSED = Variable("ACCEL_UNUSED", _parse_ignore, False)
