"""The vendor's instructions, for `accel setup`: no public table has its releases.

Entry point `mlu` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://github.com/Cambricon/torch_mlu",
    "note": (
        "Cambricon gives torch_mlu with its Neuware: https://developer.cambricon.com/; "
        "the version names the torch that it is for: 1.22.0+torch2.4.0 is for torch "
        "2.4.0, PyTorch's CPU build"
    ),
}
