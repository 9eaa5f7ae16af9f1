"""Run the `accel` command as `python -m accel_core`."""

from __future__ import annotations

import os
import sys


def _leave_the_current_folder() -> None:
    """Take the folder away that `python -m` puts first on the path, and the script `accel` does not have.

    Else a plugin, or a module named as one that we import, would be loaded from wherever the user happens
    to be. It stays where accel_core itself was found there; `-P`, `-I` and `PYTHONSAFEPATH` put none there,
    and the first entry is the user's own.
    """
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated or not sys.path:
        return
    try:
        here = os.getcwd()  # noqa: PTH109 - pathlib would be imported from that folder, if it had one
    except OSError:  # it was deleted
        here = ""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    if sys.path[0] in ("", here) and here != home:
        del sys.path[0]


if __name__ == "__main__":
    _leave_the_current_folder()

    from accel_core.cli import main

    main()
