"""The vendor's instructions, for `accel setup`: no public table has its releases.

Entry point `klxpu` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://www.kunlunxin.com/",
    "note": "Kunlunxin gives torch_xmlir with its runtime, in its own containers",
}
