"""Our folder in the user's cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from accel_core.settings import Variable

__all__ = ["user_cache"]

#: The folder for what is compiled here.
ACCEL_CACHE = Variable("ACCEL_CACHE", str, "")
#: The user's cache folder on Linux.
XDG_CACHE_HOME = Variable("XDG_CACHE_HOME", str, "")

#: Below the user's home, where the platform has its caches.
_BELOW = {
    "win32": "AppData/Local/accel-core/Cache",
    "darwin": "Library/Caches/accel-core",
}


def _home() -> str:
    # pathlib is not for the first choice of a process.
    home = os.path.expanduser("~")  # noqa: PTH111
    if home == "~":
        raise RuntimeError("Could not determine home directory.")
    return home


def user_cache(
    environ: Mapping[str, str],
    platform: str = sys.platform,
    home: Callable[[], str] = _home,
) -> str:
    """Return `ACCEL_CACHE`, else the folder `accel-core` in the platform's cache folder.

    Raises `RuntimeError` if neither is known, as for a user without a home folder.
    """
    chosen = ACCEL_CACHE.read(environ)
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))  # noqa: PTH100, PTH111 - resolve() follows links
    given = XDG_CACHE_HOME.read(environ)
    # The XDG specification: a relative path is to be ignored.
    if platform not in _BELOW and os.path.isabs(given):  # noqa: PTH117
        return f"{given}/accel-core"
    return f"{home()}/{_BELOW.get(platform, '.cache/accel-core')}"
