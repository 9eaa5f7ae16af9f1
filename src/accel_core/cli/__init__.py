"""The `accel` command: what is installed, what an accelerator can do, what is chosen and why.

Importing this package imports neither click nor rich nor the rest of accel_core.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run `accel` on the arguments of this process, and end the process with its exit status."""
    from accel_core.cli.app import accel

    try:
        # The name is given, as `python -m accel_core` must complete and explain itself as `accel` too.
        accel(prog_name="accel")
    except OSError as error:  # of help, and of what else click prints: `Output` knows its own
        import errno

        full = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))
        if error.errno not in full:
            raise
        _end_on_full_disk(error)


def _end_on_full_disk(error: OSError) -> None:
    """End the process with one line and status 1."""
    import os
    import sys

    sys.stderr.write(f"Error: {error.filename or 'stdout'} cannot be written: {error.strerror}\n")
    # What is still to be written would fail once more when Python ends, with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(1)
