"""Give a simulated module the names of its surface file, and no others."""

from __future__ import annotations

import functools
import json
import warnings
from pathlib import Path
from typing import Any

from accel_simulated import device

__all__ = ["fill"]

#: What vendors' modules hold; `surfaces/README.md` tells the form.
_SURFACES = Path(__file__).with_name("surfaces")


def fill(
    namespace: dict[str, Any], exposed_as: str, *, absent: tuple[str, ...] = ()
) -> None:
    """Bind each name that the vendor's module has and `parts` provide, unless the module defines it.

    `absent` are conditions of the surface file that are false, such as `"is_lazy()"`. A name that nothing
    provides stays absent: code that needs it fails as on an older version of the vendor's package.
    """
    provided = _provided()
    text = _SURFACES.joinpath(f"{device.vendor.name}.json").read_text(encoding="utf-8")
    for name, written in json.loads(text)["modules"][exposed_as]["names"].items():
        told = written if isinstance(written, dict) else {}
        if (
            name in provided
            and name not in namespace
            and told.get("if", "") not in absent
        ):
            namespace[name] = (
                _deprecated(provided[name])
                if told.get("deprecated")
                else provided[name]
            )


def _deprecated(function: Any) -> Any:
    """The function with the warning that the vendor's gives."""

    @functools.wraps(function)
    def warn(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(f"{function.__name__} is deprecated", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return warn


def _provided() -> dict[str, Any]:
    # Here, because the parts need to know the device's name when they are imported.
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

    parts = (devices, dtypes, graphs, lifecycle, memory, random, ranges, streams)
    found = {name: getattr(part, name) for part in parts for name in part.__all__}
    return {**found, **dtypes.TENSOR_TYPES}
