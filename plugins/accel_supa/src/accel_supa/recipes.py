"""The vendor's instructions, for `accel setup`: no public table has its releases.

Entry point `supa` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://github.com/BIRENSUPA/torch-supa",
    "note": (
        "Biren gives torch_supa with its SDK; its fourth number names the torch that "
        "it is for: 1.0.0.21000 is for torch 2.10.0"
    ),
}
