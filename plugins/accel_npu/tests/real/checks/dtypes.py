"""Data types: what the chip and torch_npu say."""

import os

import torch


def check_which_types_the_device_has(acc):
    """`STANDIN_SOC` is another chip in some children: bfloat16 came with the 910B."""
    newer = os.environ.get("STANDIN_SOC", "Ascend910B1") == "Ascend910B1"
    assert acc.is_bf16_supported() is newer
    assert acc.is_bf16_native() is newer
    assert acc.is_fp16_supported() is True
    assert acc.is_fp8_supported() is False
    assert acc.is_fp64_supported() is False
    assert acc.supported_dtypes() == [
        torch.float32,
        torch.float16,
        *([torch.bfloat16] if newer else []),
    ]


def check_float64_becomes_float32(acc):
    """Why the plugin says that there is none: to be said otherwise once torch_npu has learnt better."""
    assert torch.ones(2, device="npu").double().dtype is torch.float32
    assert torch.ones(2, device="npu").to(torch.float64).dtype is torch.float32
