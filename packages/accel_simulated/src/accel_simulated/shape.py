"""Give a simulated module exactly the names that the vendor's surface file lists."""

from __future__ import annotations

import functools
import json
import warnings
from pathlib import Path
from typing import Any

from accel_simulated import device

__all__ = ["fill"]

#: The names in vendors' modules; `surfaces/README.md` describes the format.
_SURFACES = Path(__file__).with_name("surfaces")


def fill(
    namespace: dict[str, Any], exposed_as: str, *, absent: tuple[str, ...] = ()
) -> None:
    """Add to a module's `namespace` each name that the vendor's module has and `parts` provides.

    `exposed_as` is the name of the vendor's module in the surface file. `absent` lists the conditions in the
    surface file that are false, such as `"is_lazy()"`. Names that the module already defines are kept. A name
    that `parts` does not provide stays absent, as in an older version of the vendor's package.
    """
    provided = _provided_names()
    text = _SURFACES.joinpath(f"{device.vendor.name}.json").read_text(encoding="utf-8")
    surface = json.loads(text)["modules"][exposed_as]["names"]
    for name, entry in surface.items():
        properties = entry if isinstance(entry, dict) else {}
        if name not in provided or name in namespace:
            continue
        if properties.get("if", "") in absent:
            continue
        value = provided[name]
        if properties.get("deprecated"):
            value = _deprecated(value)
        namespace[name] = value


def _deprecated(function: Any) -> Any:
    """Return a version of the function that issues the vendor's `FutureWarning`."""

    @functools.wraps(function)
    def with_warning(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{function.__name__} is deprecated", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return with_warning


def _provided_names() -> dict[str, Any]:
    """Return the functions and classes in `parts`, by name."""
    # The modules are imported here, because their import needs the device's name.
    from accel_simulated.parts import (
        devices,
        dtypes,
        graphs,
        lifecycle,
        memory,
        random,
        ranges,
        streams,
    )

    provided = dict(dtypes.TENSOR_TYPES)
    for part in (devices, dtypes, graphs, lifecycle, memory, random, ranges, streams):
        for name in part.__all__:
            provided[name] = getattr(part, name)
    return provided
