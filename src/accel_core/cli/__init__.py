"""The `accel` command: what is installed, what an accelerator can do, what is chosen and why.

Importing this package imports neither click nor rich nor the rest of accel_core.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run `accel` on the arguments of this process, and end the process with its exit status."""
    from accel_core.cli.app import accel

    # The name is given, as `python -m accel_core` must complete and explain itself as `accel` too.
    accel(prog_name="accel")
