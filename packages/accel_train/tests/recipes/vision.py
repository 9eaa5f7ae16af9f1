"""Import torchvision without its C++: a crutch of these tests, which a program imports first.

PyPI's torchvision needs CUDA's libraries, which torch's CPU build lacks. Its import then misses two
operators, declared here without a kernel: `torchvision.ops` does not work.
"""

import torch

SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
if torch.version.cuda is None:
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", SCHEMA)

import torchvision  # noqa: E402, F401
