"""The vendor's instructions, for `accel setup`: its releases have no table of what fits
what.

Entry point `musa` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://github.com/MooreThreads/torch_musa/releases",
    "note": (
        "Moore Threads gives torch_musa with the torch that it is for, of the same "
        "version: 2.7.0 is for torch 2.7.0; both need its MUSA SDK: "
        "https://developer.mthreads.com/sdk/download/musa"
    ),
}
