"""The distributions that are released together."""

from __future__ import annotations

from accel_core._support import installed
from accel_core._version import __version__

__all__ = ["require_release"]


def require_release(distribution: str) -> None:
    """Raise `ImportError` unless `distribution` is of the core's own release; called before anything else.

    What has no metadata, as a checkout on `PYTHONPATH` has none, is taken as it is.
    """
    version = installed.version(distribution)
    if version and version != __version__:
        from accel_core.machine.vendors import sourced

        raise ImportError(
            f"{distribution} {version} is installed beside accel-core {__version__}, and they are released "
            "together: " + sourced(f"pip install --upgrade '{distribution}=={__version__}'")
        )
