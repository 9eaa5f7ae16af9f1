"""Give a simulated module the names that the vendor's surface file lists."""

from __future__ import annotations

import functools
import json
import warnings
from pathlib import Path
from typing import Any

from accel_simulated import device

__all__ = ["add_vendor_names"]

#: The files that list the names in vendors' modules. `surfaces/README.md` describes their format.
_SURFACES = Path(__file__).with_name("surfaces")


def add_vendor_names(
    namespace: dict[str, Any],
    vendor_module: str,
    *,
    false_conditions: tuple[str, ...] = (),
) -> None:
    """Add the names of a vendor's module to the global variables of the simulated module.

    `namespace` contains those global variables, and names that it already contains are kept. `vendor_module`
    is the module's name in the vendor's surface file, such as `"torch.npu"`. Only names that `parts`
    implements are added. Other names are missing, as in an older version of the vendor's package.

    `false_conditions` lists the conditions in the surface file that are false, such as `"is_lazy()"`. Names
    with such a condition are not added.
    """
    implementations = _implementations_by_name()
    file = _SURFACES / f"{device.vendor.name}.json"
    surface = json.loads(file.read_text(encoding="utf-8"))
    for name, entry in surface["modules"][vendor_module]["names"].items():
        if name not in implementations or name in namespace:
            continue
        # An entry without properties is not a dictionary.
        properties = entry if isinstance(entry, dict) else {}
        if properties.get("if", "") in false_conditions:
            continue
        implementation = implementations[name]
        if properties.get("deprecated"):
            implementation = _with_deprecation_warning(implementation)
        namespace[name] = implementation


def _with_deprecation_warning(function: Any) -> Any:
    """Return a version of the function that issues a `FutureWarning`, as the vendor's function does."""

    @functools.wraps(function)
    def with_warning(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{function.__name__} is deprecated", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return with_warning


def _implementations_by_name() -> dict[str, Any]:
    """Return the functions and classes that the modules in `parts` export, by name."""
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

    implementations = dict(dtypes.TENSOR_TYPES)
    for part in (devices, dtypes, graphs, lifecycle, memory, random, ranges, streams):
        for name in part.__all__:
            implementations[name] = getattr(part, name)
    return implementations
