"""What accel-simulated says of this process, where `ACCEL_SIMULATE` asked for it.

The package starts with Python (`accel_simulated.at_start`), or not at all: here its word is only asked for,
and it is imported by nobody but `accel simulate`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from accel_core.errors import SettingError

if TYPE_CHECKING:
    import importlib.metadata

__all__ = ["VARIABLE", "VERSION", "device", "simulator", "told"]

VARIABLE = "ACCEL_SIMULATE"
#: What a torch over a simulated device says of itself, where a real one says which CUDA it is built for.
VERSION = "0.0 (simulated)"
#: Who simulates devices announces a module here, such as `accel_simulated.provider`.
_GROUP = "accel.simulators"


def told(environ: Mapping[str, str]) -> str:
    """What this process simulates: `"acme:2 by accel-simulated 0.1.0"`; empty in a real one.

    Raises `SettingError` where `ACCEL_SIMULATE` cannot be followed, or came too late to be.
    """
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return ""
    started = sys.modules.get("accel_simulated.at_start")
    if started is None:
        raise SettingError(
            f"{VARIABLE}={text!r} came after this Python had started, or accel-simulated is not in it, "
            "so nothing is simulated. Next step: pip install accel-simulated, and start Python with it: "
            f"accel simulate {text} -- COMMAND. Or unset {VARIABLE}."
        )
    words: str = started.told(environ)
    return words


def device() -> tuple[str, str]:
    """The backend that this process simulates, and torch's device type: `("klxpu", "cuda")`; else empty."""
    started = sys.modules.get("accel_simulated.at_start")
    found: tuple[str, str] = started.device() if started is not None else ("", "")
    return found


def simulator() -> importlib.metadata.EntryPoint | None:
    """The entry point of who simulates devices, not loaded; `None` where nobody does."""
    from accel_core._support import metadata

    return next(iter(metadata.entry_points(_GROUP)), None)
