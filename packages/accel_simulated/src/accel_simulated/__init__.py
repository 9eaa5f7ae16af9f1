"""Simulated accelerators: real tensors, streams and memory on a machine without a device.

Installed, this package changes nothing. A process has a simulated device when it was started with
`ACCEL_SIMULATE=acme:2` in its environment: `accel_simulated.pth` then imports `accel_simulated.at_start`.
Nothing here is a device, or says anything about a vendor's hardware, kernels or speed.

A *vendor* here is a name of `DEVICES`; `VENDORS` are those with all that a GPU has.

PYTEST_DONT_REWRITE: pytest would warn that this was imported before it, at Python's start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accel_simulated.building import build
    from accel_simulated.errors import BuildError, CannotBuildError
    from accel_simulated.vendors import DEVICES, OWN_DEVICES, VENDORS, Vendor

__all__ = [
    "DEVICES",
    "OWN_DEVICES",
    "VENDORS",
    "BuildError",
    "CannotBuildError",
    "Vendor",
    "__version__",
    "build",
]

__version__ = "0.1.0"

_HOMES = {"BuildError": "errors", "CannotBuildError": "errors", "build": "building"}


def __getattr__(name: str) -> Any:
    # Each simulated process imports this before anything else: the rest comes when it is used.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'vendors')}"), name)
