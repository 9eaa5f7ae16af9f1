"""The vendor's instructions, for `accel setup`: there is no public table of releases.

Entry point `sdaa` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "http://docs.tecorigin.com/release/torch2.7",
    "note": (
        "Tecorigin distributes TecoPyTorch (torch_sdaa) together with the TecoToolKit and "
        "the TecoDriver of the same release"
    ),
}
