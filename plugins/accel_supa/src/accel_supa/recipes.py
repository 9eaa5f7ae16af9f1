"""The vendor's instructions, for `accel setup`: no public table has its releases.

Entry point `supa` of group `accel.recipes`; docs/howto/setup.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://github.com/BIRENSUPA/torch-supa",
}
