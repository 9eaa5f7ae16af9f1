"""Data types, autocast, tensors on the device."""

from __future__ import annotations

import os

import torch


def check_what_the_device_says(acc):
    """`STANDIN_SOC` is another chip in some children: bfloat16 came with the 910B."""
    newer = os.environ.get("STANDIN_SOC", "Ascend910B1") == "Ascend910B1"
    assert acc.is_bf16_supported() is acc.is_bf16_native() is newer
    assert acc.is_fp16_supported() is True
    assert (acc.is_fp8_supported(), acc.is_fp64_supported()) == (False, False)
    assert acc.supported_dtypes() == [torch.float32, torch.float16, *([torch.bfloat16] if newer else [])]


def check_tensors_from_data(acc):
    for name, dtype in {
        "BFloat16Tensor": torch.bfloat16,
        "ByteTensor": torch.uint8,
        "DoubleTensor": torch.float64,
        "FloatTensor": torch.float32,
        "HalfTensor": torch.float16,
        "IntTensor": torch.int32,
        "LongTensor": torch.int64,
    }.items():
        made = getattr(acc, name)([1, 2])
        assert (made.dtype, str(made.device), made.cpu().tolist()) == (dtype, "npu:0", [1, 2]), name
        with acc.device_guard(1):
            assert getattr(acc, name)([3]).device.index == 1


def check_where_a_tensor_is(acc):
    x = torch.ones(2)
    assert acc.on_accelerator(x) is False
    assert acc.on_accelerator(x.to(acc.device())) is True


def check_the_type_to_train_in(acc):
    dtype = acc.training_dtype()
    assert dtype is torch.bfloat16 if acc.is_bf16_native() else dtype in (torch.float16, torch.float32)
    assert acc.grad_scaler().is_enabled() is (dtype is torch.float16)
    assert acc.grad_scaler(torch.float16).is_enabled()


def check_autocast(acc):
    one, other = torch.ones(4, 4, device="npu"), torch.ones(4, 4, device="npu")
    with acc.autocast():
        assert (one @ other).dtype == torch.float16  # torch_npu's own default
    with acc.autocast(torch.bfloat16):
        product = one @ other
        assert product.dtype == torch.bfloat16
        assert (product.float() + 1).dtype == torch.float32
    with acc.autocast(torch.float16, enabled=False):
        assert (one @ other).dtype == torch.float32
    assert product.float().cpu().unique().tolist() == [4.0]


def check_a_tensor_travels(acc):
    x = torch.arange(12.0).view(3, 4)
    there = x.to(acc.device(0)).t().contiguous()
    assert torch.equal(there.to(acc.device(1)).cpu(), x.t())
    assert torch.equal((there + 1).cpu(), x.t() + 1)


def check_saving_and_loading(acc):
    import io

    file = io.BytesIO()
    torch.save({"x": torch.ones(3, device="npu:1")}, file)
    file.seek(0)
    assert torch.load(file)["x"].device == torch.device("npu", 1)
    file.seek(0)
    assert torch.load(file, map_location="cpu")["x"].tolist() == [1.0] * 3
