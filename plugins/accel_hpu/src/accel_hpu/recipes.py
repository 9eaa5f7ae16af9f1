"""The vendor's instructions, for `accel setup`: no public table has its releases.

Entry point `hpu` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://docs.habana.ai/en/latest/Installation_Guide/",
    "note": (
        "Intel's installer brings Gaudi's own torch and its bridge; no registry has them"
    ),
}
