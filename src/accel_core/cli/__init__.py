"""The `accel` command: what is installed, what an accelerator can do, what is chosen and why.

Importing this package imports neither click nor rich nor the rest of accel_core.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["end_interrupted", "main"]


def main() -> None:
    """Run `accel` on the arguments of this process, and end the process with its exit status."""
    try:
        from accel_core.cli.app import accel

        # The name is given, as `python -m accel_core` must complete and explain itself as `accel` too.
        accel(prog_name="accel")
    except OSError as error:  # of help, and of what else click prints: `Output` knows its own
        import errno

        full = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))
        if error.errno not in full:
            raise
        _end_on_full_disk(error)
    except KeyboardInterrupt:  # while the commands themselves were imported
        end_interrupted()


def end_interrupted() -> NoReturn:
    """End the process by SIGINT, as one ends that does not look for it: so a shell's loop ends too."""
    import os
    import signal
    import sys

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        if os.name == "posix":
            os.kill(os.getpid(), signal.SIGINT)
    sys.exit(130)


def _end_on_full_disk(error: OSError) -> None:
    """End the process with one line and status 1."""
    import os
    import sys

    sys.stderr.write(f"Error: {error.filename or 'stdout'} cannot be written: {error.strerror}\n")
    # What is still to be written would fail once more when Python ends, with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(1)
