"""The vendor's instructions, for `accel setup`: there is no public table of releases.

Entry point `hpu` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://docs.habana.ai/en/latest/Installation_Guide/",
    "note": (
        "Intel's installer contains Habana's bridge and the matching torch, which are not on PyPI"
    ),
}
