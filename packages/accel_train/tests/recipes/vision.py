"""Import torchvision without its C++: a crutch of these tests, to import before a library that needs it.

PyPI's build for torch's release asks for CUDA's libraries, which torch's CPU build lacks. Without its C++ the import
fails as two operators are missing, so they are declared, without a kernel: `torchvision.ops` does not work here.
"""

import torch

for name in ("nms", "qnms"):
    torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import torchvision  # noqa: E402

assert not torchvision.extension._has_ops(), "torchvision's C++ loads: delete this crutch"
