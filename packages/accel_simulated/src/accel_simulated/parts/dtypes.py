"""The supported data types, and tensor types such as `torch.mlu.FloatTensor`."""

from __future__ import annotations

from typing import Any

import torch

from accel_simulated import device as simulated

__all__ = ["TENSOR_TYPES", "get_amp_supported_dtype", "is_bf16_supported"]


def is_bf16_supported() -> bool:
    return simulated.count > 0


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the data types that autocast supports on this device.

    `torch.autocast` calls this function in every vendor's device module.
    """
    return [torch.float16, torch.bfloat16]


def _make_tensor_type(dtype: torch.dtype) -> type:
    """Return a class such as `torch.npu.FloatTensor`, whose constructor takes data or sizes."""

    def new(cls: type, *arguments: Any) -> torch.Tensor:
        device_type = simulated.vendor.name
        is_data = len(arguments) == 1 and not isinstance(arguments[0], int)
        if is_data:
            return torch.tensor(arguments[0], dtype=dtype, device=device_type)
        return torch.empty(*arguments, dtype=dtype, device=device_type)

    return type("TensorType", (), {"__new__": new, "dtype": dtype})


#: Types such as `torch.<name>.FloatTensor`, which torch's generated code creates for PrivateUse1.
TENSOR_TYPES = {
    f"{name}Tensor": _make_tensor_type(dtype)
    for name, dtype in {
        "BFloat16": torch.bfloat16, "Bool": torch.bool, "Byte": torch.uint8, "Char": torch.int8,
        "Double": torch.float64, "Float": torch.float32, "Half": torch.float16, "Int": torch.int32,
        "Long": torch.int64, "Short": torch.int16,
    }.items()
}  # fmt: skip
