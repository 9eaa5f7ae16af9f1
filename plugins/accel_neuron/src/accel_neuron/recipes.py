"""The torch that each torch-neuronx needs, for `accel setup`.

Entry point `neuron` of group `accel.recipes`; docs/howto/writing-a-plugin.md describes the keys.
"""

from __future__ import annotations

__all__ = ["RECIPE"]

#: AWS's release notes of TorchNeuron: one family of torch-neuronx for each torch, both
#: for Python 3.12 to 3.14 on Linux x86-64.
_SOURCE = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/release-notes/components/torchneuron.html"
_FAMILIES = (("2.14.0", "2.14.3.0.*"), ("2.13.0", "2.13.3.0.*"))

RECIPE = {
    "url": "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/torch/get-started/quickstart-torch-neuron.html",
    # PyPI's torch for x86-64 contains CUDA, which is useless on a Trainium host.
    "torch_index": {"x86_64": "https://download.pytorch.org/whl/cpu"},
    # AWS's instructions use this index in addition to PyPI, which has only a placeholder.
    "package_index": "https://pip.repos.neuron.amazonaws.com",
    "note": (
        "AWS's wheels are for Ubuntu 26.04, and need AWS's driver and runtime (aws-neuronx-dkms, "
        "aws-neuronx-runtime-lib), which the instructions install first"
    ),
    "rows": [
        {
            "torch": torch,
            "packages": [f"torch-neuronx=={family}"],
            "python": ">=3.12,<3.15",
            "architectures": ["x86_64"],
            "source": _SOURCE,
            "date": "2026-10-19",
        }
        for torch, family in _FAMILIES
    ],
}
