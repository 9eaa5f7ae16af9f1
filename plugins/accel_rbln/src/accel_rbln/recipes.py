"""The torch that torch-rbln needs, for `accel setup`.

Entry point `rbln` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://docs.rbln.ai/latest/software/rbln_pytorch/installation.html",
    "torch_index": {"x86_64": "https://download.pytorch.org/whl/cpu"},
    "note": (
        "torch-rbln needs rebel-compiler, from Rebellions' package index, which requires an account"
    ),
    "rows": [
        {
            "torch": "2.13.0",
            "packages": ["torch-rbln==0.12.0"],
            "python": ">=3.10,<3.15",
            "architectures": ["x86_64"],
            "source": "https://pypi.org/project/torch-rbln/0.12.0/",
            "date": "2026-11-24",
        }
    ],
}
