"""The vendor's instructions, for `accel setup`: there is no public table of releases.

Entry point `klxpu` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://www.kunlunxin.com/",
    "note": (
        "Kunlunxin distributes torch_xmlir in container images, together with its runtime"
    ),
}
