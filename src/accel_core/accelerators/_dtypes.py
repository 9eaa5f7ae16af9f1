"""Section of the interface: data types."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from accel_core.accelerators._pinning import Pinning

if TYPE_CHECKING:
    import torch

__all__ = ["Dtypes"]


class Dtypes(Pinning):
    """Data types: what the device computes natively, and tensors made on it."""

    def is_bf16_supported(self) -> bool:
        """Whether the device computes in bfloat16 natively."""
        return False

    def is_fp16_supported(self) -> bool:
        """Whether the device computes in float16 natively."""
        return False

    def is_fp8_supported(self) -> bool:
        """Whether the device multiplies matrices in an 8-bit floating point type natively."""
        return False

    def is_fp64_supported(self) -> bool:
        """Whether the device has float64 at all; nearly all have, mps has not."""
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        """Floating point types to train in, `torch.float32` first."""
        dtypes = [self._torch.float32]
        if self.is_fp16_supported():
            dtypes.append(self._torch.float16)
        if self.is_bf16_supported():
            dtypes.append(self._torch.bfloat16)
        return dtypes

    def autocast(self, dtype: torch.dtype | None = None, enabled: bool = True) -> AbstractContextManager[Any]:
        """`torch.autocast` for this device type; without `dtype`, torch's default for it."""
        context: AbstractContextManager[Any] = self._torch.autocast(
            self._device_type, dtype=dtype, enabled=enabled
        )
        return context

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is on a device of this accelerator's type."""
        return tensor.device.type == self._device_type

    def _tensor_type(self, dtype: torch.dtype) -> Callable[..., torch.Tensor]:
        # Without an index torch puts the tensor on the device that is current when this is called.
        return partial(self._torch.tensor, dtype=dtype, device=self._device_type)

    @property
    def BFloat16Tensor(self) -> Callable[..., torch.Tensor]:
        """Called with data, makes a bfloat16 tensor on the current device."""
        return self._tensor_type(self._torch.bfloat16)

    @property
    def ByteTensor(self) -> Callable[..., torch.Tensor]:
        """Called with data, makes an uint8 tensor on the current device."""
        return self._tensor_type(self._torch.uint8)

    @property
    def DoubleTensor(self) -> Callable[..., torch.Tensor]:
        """Called with data, makes a float64 tensor on the current device.

        The call raises `UnsupportedError` on a device without float64.
        """
        return self._tensor_type(self._torch.float64) if self.is_fp64_supported() else self._no_float64

    @property
    def FloatTensor(self) -> Callable[..., torch.Tensor]:
        """Called with data, makes a float32 tensor on the current device."""
        return self._tensor_type(self._torch.float32)

    @property
    def HalfTensor(self) -> Callable[..., torch.Tensor]:
        """Called with data, makes a float16 tensor on the current device."""
        return self._tensor_type(self._torch.float16)

    @property
    def IntTensor(self) -> Callable[..., torch.Tensor]:
        """Called with data, makes an int32 tensor on the current device."""
        return self._tensor_type(self._torch.int32)

    @property
    def LongTensor(self) -> Callable[..., torch.Tensor]:
        """Called with data, makes an int64 tensor on the current device."""
        return self._tensor_type(self._torch.int64)

    def _no_float64(self, *_: Any, **__: Any) -> NoReturn:
        raise self._unsupported("DoubleTensor", "the device has no float64")
