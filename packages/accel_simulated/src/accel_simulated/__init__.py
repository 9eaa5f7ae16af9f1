"""Simulated accelerators: real tensors, streams and memory on a machine without a device.

The installed package changes nothing by itself. A process has a simulated device if it is started with
`ACCEL_SIMULATE=acme:2` in its environment: `accel_simulated.pth` then imports `accel_simulated.at_start`.
Results on a simulated device show nothing about a vendor's hardware, kernels or speed.

`DEVICES` contains every device that can be simulated. `VENDORS` contains the devices with all features of a
GPU. `OWN_DEVICES` contains the entries of `VENDORS` that have their own torch device type.

PYTEST_DONT_REWRITE: without this marker pytest warns that the package was imported at Python's start, before
pytest could rewrite its assertions.
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

_MODULE_OF_NAME = {
    "BuildError": "errors",
    "CannotBuildError": "errors",
    "build": "building",
}


def __getattr__(name: str) -> Any:
    # Submodules are imported on use, because every simulated process imports this package at its start.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULE_OF_NAME.get(name, 'vendors')}")
    return getattr(module, name)
