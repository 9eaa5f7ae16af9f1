"""Checks of the claimed data types, and of tensor types such as `FloatTensor`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from accel_core import Accelerator
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, require_raises, require_type

__all__ = ["TestTypes"]


class TestTypes(BackendTestBase):
    """Programs choose among the claimed data types, and use tensor types such as `FloatTensor`."""

    def test_supported_dtypes(self, accelerator: Accelerator) -> None:
        """`supported_dtypes` lists the types to train in, float32 first, and agrees with boolean members."""
        dtypes = accelerator.supported_dtypes()
        require_type(dtypes, list, "supported_dtypes()")
        require(
            dtypes and dtypes[0] is torch.float32,
            f"supported_dtypes() returned {dtypes}; expected float32 first",
        )
        require(
            len(set(dtypes)) == len(dtypes),
            f"supported_dtypes() contains a type twice: {dtypes}",
        )
        for dtype, name in (
            (torch.bfloat16, "is_bf16_supported"),
            (torch.float16, "is_fp16_supported"),
        ):
            is_supported = getattr(accelerator, name)()
            require(
                (dtype in dtypes) is is_supported,
                f"{name}() returned {is_supported}, but supported_dtypes() returned {dtypes}",
            )
        best, is_native = accelerator.training_dtype(), accelerator.is_bf16_native()
        require(
            best in dtypes,
            f"training_dtype() returned {best}, which supported_dtypes() does not contain",
        )
        is_consistent = (best is torch.bfloat16) is is_native
        require(
            is_consistent,
            f"training_dtype() returned {best}, but is_bf16_native() returned {is_native}",
        )
        for name in ("supported_dtypes", "export_envs", "visible_devices_envs"):
            returned = getattr(accelerator, name)()
            copied = list(returned)
            returned.append("another")
            returned_again = list(getattr(accelerator, name)())
            returned.remove("another")
            require(
                returned_again == copied,
                f"changing the list that {name}() returned changes later results; expected a new list",
            )

    def test_device_capability(self, accelerator: Accelerator) -> None:
        """`get_device_capability` returns data types, as torch.accelerator does, and not a version."""
        for index in (None, 0):
            capability = accelerator.get_device_capability(index)
            listed = (
                capability.get("supported_dtypes")
                if isinstance(capability, Mapping)
                else None
            )
            require(
                type(listed) is set,
                f"get_device_capability({index}) returned {capability!r}",
            )
            claimed = {torch.int64, torch.bool, *accelerator.supported_dtypes()}
            claimed |= {torch.float64} if accelerator.is_fp64_supported() else set()
            missing = sorted(map(str, claimed - set(listed or ())))
            require(
                not missing,
                f"get_device_capability({index}) does not contain {', '.join(missing)}",
            )
            expected = set(listed or ())
            capability["supported_dtypes"].clear()
            listed_again = accelerator.get_device_capability(index)["supported_dtypes"]
            require(
                listed_again == expected,
                f"changing the set from get_device_capability({index}) changes later results",
            )
            for dtype in sorted(expected, key=str):
                can_create = _can_create(dtype, accelerator.device(index))
                require(
                    can_create,
                    f"get_device_capability({index}) contains {dtype}, which no tensor can have",
                )

    def test_tensors_of_data(self, accelerator: Accelerator) -> None:
        """Types such as `FloatTensor` convert data to tensors of their type on the current device."""
        for name, dtype in _tensor_types(accelerator).items():
            for data in ([1, 2], (1, 2), []):
                tensor = getattr(accelerator, name)(data)
                device_type = accelerator.device_type
                require(
                    tensor.dtype is dtype,
                    f"{name}({data}) is of {tensor.dtype}; expected {dtype}",
                )
                require(
                    tensor.device.type == device_type,
                    f"{name}({data}) is on {tensor.device}; expected {device_type}",
                )
                require(
                    tensor.tolist() == list(data),
                    f"{name}({data}) contains {tensor.tolist()}",
                )
            last = accelerator.device_count() - 1
            with accelerator.device_guard(last):
                device_used = getattr(accelerator, name)([1, 2]).device
            require(
                device_used.index in (None, last),
                f"with device {last} selected, {name}([1, 2]) is on {device_used}",
            )
            original = torch.ones(3, dtype=dtype, device=accelerator.device())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch advises clone()
                getattr(accelerator, name)(original).zero_()
            require(
                original.tolist() == [1, 1, 1],
                f"changing the result of {name}(t), where t has the type {dtype}, changes t; expected a copy",
            )
        has_gradient = accelerator.FloatTensor([1.0], requires_grad=True).requires_grad
        require(
            has_gradient,
            "FloatTensor([1.0], requires_grad=True) does not require a gradient",
        )

    def test_tensors_of_a_size(self, accelerator: Accelerator) -> None:
        """A tensor type creates a tensor of a given size as in torch; a scalar raises a TypeError."""
        sizes: tuple[tuple[tuple[Any, ...], tuple[int, ...]], ...] = (
            ((), (0,)), ((2, 3), (2, 3)), ((0, 4), (0, 4)), ((torch.Size([2, 3]),), (2, 3)),
        )  # fmt: skip
        for name, dtype in _tensor_types(accelerator).items():
            for arguments, shape in sizes:
                tensor = getattr(accelerator, name)(*arguments)
                is_right = (tensor.dtype, tensor.device.type, tuple(tensor.shape)) == (
                    dtype, accelerator.device_type, shape,
                )  # fmt: skip
                require(
                    is_right,
                    f"{name}{arguments} is {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}",
                )
            require_raises(
                partial(getattr(accelerator, name), 5), TypeError, f"{name}(5)"
            )

    def test_instances(self, accelerator: Accelerator) -> None:
        """`isinstance(t, FloatTensor)` checks the data type and the device, as in torch."""
        tensor_types = _tensor_types(accelerator)
        for own_type, dtype in tensor_types.items():
            tensor = torch.ones(1, dtype=dtype, device=accelerator.device())
            for name in tensor_types:
                is_instance = isinstance(tensor, getattr(accelerator, name))
                require(
                    is_instance is (name == own_type),
                    f"isinstance of a {dtype} tensor and {name} returned {is_instance}",
                )
            is_instance_elsewhere = isinstance(
                tensor.to("meta"), getattr(accelerator, own_type)
            )
            require(
                not is_instance_elsewhere,
                f"a tensor on meta is an instance of {own_type}",
            )


def _can_create(dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a tensor of the type can be created on the device."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that some types are experimental
        try:
            return torch.empty(1, dtype=dtype, device=device).dtype == dtype
        except (RuntimeError, TypeError):
            return False


def _tensor_types(accelerator: Accelerator) -> dict[str, torch.dtype]:
    """Return the tensor types such as `FloatTensor` that the device supports, with their data types."""
    tensor_types = {
        "ByteTensor": torch.uint8, "FloatTensor": torch.float32, "HalfTensor": torch.float16,
        "BFloat16Tensor": torch.bfloat16, "IntTensor": torch.int32, "LongTensor": torch.int64,
    }  # fmt: skip
    if accelerator.is_fp64_supported():
        tensor_types["DoubleTensor"] = torch.float64
    return tensor_types
