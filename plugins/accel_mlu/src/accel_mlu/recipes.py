"""The vendor's instructions, for `accel setup`: there is no public table of releases.

Entry point `mlu` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://github.com/Cambricon/torch_mlu",
    "note": (
        "Cambricon distributes torch_mlu with Neuware (https://developer.cambricon.com/). "
        "The end of torch_mlu's version is the torch release: 1.22.0+torch2.4.0 is for the "
        "CPU build of torch 2.4.0"
    ),
}
