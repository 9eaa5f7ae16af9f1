"""The vendor's instructions, for `accel setup`: there is no public table of releases.

Entry point `supa` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://github.com/BIRENSUPA/torch-supa",
    "note": (
        "Biren distributes torch_supa with its SDK. The fourth number of torch_supa's "
        "version is the torch release: 1.0.0.21000 is for torch 2.10.0"
    ),
}
