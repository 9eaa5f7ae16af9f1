"""The torch that TorchTPU is built for, for `accel setup`.

Entry point `tpu` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

RECIPE = {
    "url": "https://pypi.org/project/torch-tpu/",
    # PyPI's torch for x86-64 contains CUDA, which is useless on a host with TPUs.
    "torch_index": {"x86_64": "https://download.pytorch.org/whl/cpu"},
    "rows": [
        # The metadata of torch-tpu allows torch 2.11 to 2.15; session tpu-real runs it
        # with this release.
        {
            "torch": "2.13.0",
            "packages": ["torch-tpu==0.2.0"],
            "python": ">=3.11,<3.15",
            "architectures": ["x86_64"],
            "source": "https://pypi.org/project/torch-tpu/0.2.0/",
            "date": "2026-11-24",
        }
    ],
}
