"""Giving a simulated module the names of its surface file, and no other."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from accel_testing import surfaces

from accel_simulated import device

__all__ = ["fill"]


def fill(namespace: dict[str, Any], exposed_as: str, *, absent: tuple[str, ...] = ()) -> None:
    """Bind each name that the vendor's module has and `parts` provide, unless the module has its own.

    `absent` are conditions of the surface file that do not hold, such as `"is_lazy()"`. A name that
    nobody provides stays absent: code that needs it fails as it would on a vendor's older version.
    """
    provided = _provided()
    for name, entry in surfaces.users_names(device.vendor.name)[exposed_as].items():
        if name in provided and name not in namespace and entry.condition not in absent:
            namespace[name] = _deprecated(provided[name]) if entry.deprecated else provided[name]


def _deprecated(function: Any) -> Any:
    """The function with the warning that the vendor's gives."""

    @functools.wraps(function)
    def warn(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{function.__name__} is deprecated", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return warn


def _provided() -> dict[str, Any]:
    # Here, because the parts need to know the device's name when they are imported.
    from accel_simulated.parts import devices, dtypes, graphs, lifecycle, memory, random, ranges, streams

    parts = (devices, dtypes, graphs, lifecycle, memory, random, ranges, streams)
    found = {name: getattr(part, name) for part in parts for name in part.__all__}
    return {**found, **dtypes.TENSOR_TYPES}
