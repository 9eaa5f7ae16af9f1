"""Reading `surfaces/<vendor>.json`: what the vendor's modules hold, from the vendor's own packages."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from accel_simulated.vendors import ROOT

__all__ = ["modules", "names"]


@lru_cache
def modules(vendor: str) -> dict[str, dict[str, Any]]:
    """The vendor's modules by what users call them, `"torch.mlu"`, the newest version of each."""
    found: dict[str, dict[str, Any]] = {}
    for module in json.loads((ROOT / "surfaces" / f"{vendor}.json").read_text())["modules"]:
        found.setdefault(
            module["exposed_as"].partition(" ")[0], module
        )  # "torch.mlu (r1.22)" is an older one
    return found


@lru_cache
def names(vendor: str, exposed_as: str) -> dict[str, dict[str, Any]]:
    """The names of one module, each with its entry; of several under a condition, the last."""
    return {entry["name"]: entry for entry in modules(vendor)[exposed_as]["names"]}
