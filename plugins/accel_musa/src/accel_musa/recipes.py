"""The vendor's instructions, for `accel setup`: there is no table of compatible
releases.

Entry point `musa` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://github.com/MooreThreads/torch_musa/releases",
    "note": (
        "Moore Threads distributes torch_musa with the torch of the same version, so "
        "2.7.0 is for torch 2.7.0. Both need the MUSA SDK: "
        "https://developer.mthreads.com/sdk/download/musa"
    ),
}
