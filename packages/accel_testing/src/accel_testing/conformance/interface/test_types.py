"""Types of numbers: which are claimed, and `FloatTensor` and its like."""

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
    """Data types that a program may choose, and tensor types such as `FloatTensor`."""

    def test_supported_dtypes(self, accelerator: Accelerator) -> None:
        """`supported_dtypes` lists the types to train in, float32 first, as the yes-or-no members say."""
        dtypes = accelerator.supported_dtypes()
        require_type(dtypes, list, "supported_dtypes()")
        require(
            dtypes and dtypes[0] is torch.float32,
            f"supported_dtypes() gave {dtypes}; float32 is first",
        )
        require(
            len(set(dtypes)) == len(dtypes),
            f"supported_dtypes() names one twice: {dtypes}",
        )
        for dtype, name in (
            (torch.bfloat16, "is_bf16_supported"),
            (torch.float16, "is_fp16_supported"),
        ):
            says = getattr(accelerator, name)()
            require(
                (dtype in dtypes) is says,
                f"{name}() gave {says}, and supported_dtypes() {dtypes}",
            )
        best, native = accelerator.training_dtype(), accelerator.is_bf16_native()
        require(
            best in dtypes,
            f"training_dtype() gave {best}, which supported_dtypes() has not",
        )
        fits = (best is torch.bfloat16) is native
        require(fits, f"training_dtype() gave {best}, and is_bf16_native() {native}")
        for name in ("supported_dtypes", "export_envs", "visible_devices_envs"):
            given = getattr(accelerator, name)()
            kept = list(given)
            given.append("another")
            again = list(getattr(accelerator, name)())
            given.remove("another")
            require(
                again == kept,
                f"a change of the list that {name}() gave changes what it gives others",
            )

    def test_device_capability(self, accelerator: Accelerator) -> None:
        """`get_device_capability` returns data types, like torch.accelerator's, not a version."""
        for index in (None, 0):
            told = accelerator.get_device_capability(index)
            types = told.get("supported_dtypes") if isinstance(told, Mapping) else None
            require(type(types) is set, f"get_device_capability({index}) gave {told!r}")
            claimed = {torch.int64, torch.bool, *accelerator.supported_dtypes()}
            claimed |= {torch.float64} if accelerator.is_fp64_supported() else set()
            lacking = sorted(map(str, claimed - set(types or ())))
            require(
                not lacking,
                f"get_device_capability({index}) has no {', '.join(lacking)}",
            )
            kept = set(types or ())
            told["supported_dtypes"].clear()
            again = accelerator.get_device_capability(index)["supported_dtypes"]
            require(
                again == kept,
                f"a change of the set that get_device_capability({index}) gave changes what it gives others",
            )
            for dtype in sorted(kept, key=str):
                made = _made(dtype, accelerator.device(index))
                require(
                    made,
                    f"get_device_capability({index}) tells of {dtype}, of which no tensor can be made",
                )

    def test_tensors_of_data(self, accelerator: Accelerator) -> None:
        """`FloatTensor` and its like turn data into tensors of that type on the current device."""
        for name, dtype in _tensor_types(accelerator).items():
            for data in ([1, 2], (1, 2), []):
                made = getattr(accelerator, name)(data)
                kind = accelerator.device_type
                require(
                    made.dtype is dtype,
                    f"{name}({data}) is of {made.dtype}; expected {dtype}",
                )
                require(
                    made.device.type == kind,
                    f"{name}({data}) is on {made.device}; expected {kind}",
                )
                require(
                    made.tolist() == list(data), f"{name}({data}) holds {made.tolist()}"
                )
            last = accelerator.device_count() - 1
            with accelerator.device_guard(last):
                there = getattr(accelerator, name)([1, 2]).device
            require(
                there.index in (None, last),
                f"with device {last} selected {name}([1, 2]) is on {there}",
            )
            given = torch.ones(3, dtype=dtype, device=accelerator.device())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch advises clone()
                getattr(accelerator, name)(given).zero_()
            require(
                given.tolist() == [1, 1, 1],
                f"a change of what {name}(t) gave, t of {dtype}, changes t as well",
            )
        requires = accelerator.FloatTensor([1.0], requires_grad=True).requires_grad
        require(requires, "FloatTensor([1.0], requires_grad=True) requires no gradient")

    def test_tensors_of_a_size(self, accelerator: Accelerator) -> None:
        """A tensor type makes a tensor of a given size, as torch's does; one number is a TypeError."""
        sizes: tuple[tuple[tuple[Any, ...], tuple[int, ...]], ...] = (
            ((), (0,)), ((2, 3), (2, 3)), ((0, 4), (0, 4)), ((torch.Size([2, 3]),), (2, 3)),
        )  # fmt: skip
        for name, dtype in _tensor_types(accelerator).items():
            for given, shape in sizes:
                made = getattr(accelerator, name)(*given)
                fits = (made.dtype, made.device.type, tuple(made.shape)) == (
                    dtype, accelerator.device_type, shape,
                )  # fmt: skip
                require(
                    fits,
                    f"{name}{given} is {tuple(made.shape)} of {made.dtype} on {made.device}",
                )
            require_raises(
                partial(getattr(accelerator, name), 5), TypeError, f"{name}(5)"
            )

    def test_instances(self, accelerator: Accelerator) -> None:
        """`isinstance(t, FloatTensor)` checks type and device, as torch's types do."""
        kinds = _tensor_types(accelerator)
        for other, dtype in kinds.items():
            here = torch.ones(1, dtype=dtype, device=accelerator.device())
            for name in kinds:
                told = isinstance(here, getattr(accelerator, name))
                require(
                    told is (name == other),
                    f"isinstance of a {dtype} tensor and {name} gave {told}",
                )
            elsewhere = isinstance(here.to("meta"), getattr(accelerator, other))
            require(not elsewhere, f"a tensor on meta is an instance of {other}")


def _made(dtype: torch.dtype, device: torch.device) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls some types experimental
        try:
            return torch.empty(1, dtype=dtype, device=device).dtype == dtype
        except (RuntimeError, TypeError):
            return False


def _tensor_types(accelerator: Accelerator) -> dict[str, torch.dtype]:
    """Those that the device can make."""
    kinds = {
        "ByteTensor": torch.uint8, "FloatTensor": torch.float32, "HalfTensor": torch.float16,
        "BFloat16Tensor": torch.bfloat16, "IntTensor": torch.int32, "LongTensor": torch.int64,
    }  # fmt: skip
    return {
        **kinds,
        **({"DoubleTensor": torch.float64} if accelerator.is_fp64_supported() else {}),
    }
