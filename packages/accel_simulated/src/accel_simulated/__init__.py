"""Simulated accelerators: real tensors, streams and memory on a machine without a device.

The installed package changes nothing by itself. A process has a simulated device if it is started with
`ACCEL_SIMULATE=acme:2` in its environment: `accel_simulated.pth` then imports `accel_simulated.at_start`.
Results on a simulated device show nothing about a vendor's hardware, kernels or speed.

`DEVICES` has all devices that can be simulated, `VENDORS` those that have everything that a GPU has, and
`OWN_DEVICES` those of `VENDORS` with a device type of their own.

PYTEST_DONT_REWRITE: otherwise pytest warns that this package was imported before pytest, at Python's start.
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
    # Every simulated process imports this package at its start, so submodules are imported on use.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'vendors')}"), name)
