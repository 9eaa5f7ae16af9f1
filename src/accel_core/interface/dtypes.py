"""Section of the interface: data types, the old tensor types, and types tried on the
device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cached_property, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from accel_core.interface.devices import Devices, has_parameter

if TYPE_CHECKING:
    import torch
    from typing_extensions import Unpack

    from accel_core.interface.records import GradScalerOptions


class TensorType:
    """Stand-in for `torch.<device>.FloatTensor`: call it to make a tensor, or use it
    with `isinstance`.

    `FloatTensor([1, 2])` has these values, `FloatTensor()` is empty, and
    `FloatTensor(2, 3)` or a `torch.Size` makes an uninitialised tensor, as torch's
    types do. One whole number is a `TypeError`: torch's type takes it for a size, and
    most vendors' types for a value. Keywords are those of `torch.tensor`.

    The tensor is made on the current device. On a device without the type the call
    raises `UnsupportedError`, and no tensor is an instance of it.
    """

    def __init__(self, accelerator: Dtypes, name: str, dtype: torch.dtype) -> None:
        self._accelerator = accelerator
        self._name = name
        #: The data type of the tensors.
        self.dtype = dtype

    def __call__(self, *data: Any, **options: Any) -> Any:
        """Make a tensor."""
        torch, device_type = self._accelerator._torch, self._accelerator.device_type
        if self.dtype is torch.float64 and not self._accelerator.is_fp64_supported():
            raise self._accelerator._unsupported(
                self._name, "the device has no float64"
            )
        options = {"dtype": self.dtype, "device": device_type, **options}
        if not data and "data" not in options:
            return torch.empty(0, **options)
        if len(data) > 1 or (data and isinstance(data[0], torch.Size)):
            return torch.empty(*data, **options)
        if data and type(number := data[0]) is int:
            raise TypeError(
                f"{self!r}({number}) could mean one value or {number} elements: write "
                f"{self._name}([{number}]) for the value, "
                f"torch.empty({number}, dtype={self.dtype}, device={device_type!r}) for the elements"
            )
        return torch.tensor(*data, **options)

    def __instancecheck__(self, tensor: Any) -> bool:
        is_one = (
            isinstance(tensor, self._accelerator._torch.Tensor)
            and tensor.dtype == self.dtype
        )
        return is_one and self._accelerator.on_accelerator(tensor)

    def __repr__(self) -> str:
        return f"{self._accelerator.device_type}.{self._name}"


def _tensor_type(name: str, dtype: str) -> Any:
    told = f"Makes {dtype} tensors on the current device, as torch's old type: of data or of a size."
    return property(
        lambda self: TensorType(self, name, getattr(self._torch, dtype)), doc=told
    )


class Dtypes(Devices):
    """Data types in which a model can be trained, and tensor types of the device."""

    def is_bf16_supported(self) -> bool:
        """Whether a model can be trained in bfloat16 on this device, natively or
        emulated.

        A trainer may refuse to train if this is False. `is_bf16_native` says whether it
        is fast. If the vendor does not tell, a matrix product is tried once, and again
        later if it failed for another reason than the data type.
        """
        return self._computes("is_bf16_supported", "bfloat16")

    def is_bf16_native(self) -> bool:
        """Whether the hardware computes in bfloat16; otherwise it is emulated, and
        slower.

        If the vendor does not distinguish the two, this returns `is_bf16_supported()`.
        """
        ask = self._lookup("is_bf16_supported")
        return self.is_bf16_supported() if ask is None else self._natively(ask)

    def is_fp16_supported(self) -> bool:
        """Whether a model can be trained in float16 on this device; a trainer may
        refuse if this is False.

        It is the vendor's answer, or found as for bfloat16. A plugin that knows it
        overrides this, so that asking does not start the device.
        """
        return self._computes("is_fp16_supported", "float16")

    def is_fp8_supported(self) -> bool:
        """Whether the hardware multiplies matrices in an 8-bit floating point type;
        False if the vendor does not tell.
        """
        ask = self._lookup("is_fp8_supported")
        return ask is not None and self._natively(ask)

    def _natively(self, ask: Callable[..., Any]) -> bool:
        """A vendor's answer about a data type, without the emulation that several count
        by default.
        """
        given = (
            {"including_emulation": False}
            if has_parameter(ask, "including_emulation")
            else {}
        )
        return self.is_available() and bool(self._if_supported(partial(ask, **given)))

    def _computes(self, name: str, dtype: str) -> bool:
        if self.device_module is None or not self.is_available():
            return False
        ask = self._lookup(name)
        if ask is not None and (told := self._if_supported(ask)) is not None:
            return bool(told)
        if dtype not in self._trials:
            answer = computes_in(
                self._torch, self._device_type, getattr(self._torch, dtype)
            )
            if isinstance(answer, Exception):
                why = f"{type(answer).__name__}: {str(answer).partition(chr(10))[0]}"
                untried = f"whether it computes in torch.{dtype} could not be tried, so the answer is no"
                said = f"{self.name}: {untried} until the next call: {why}"
                warnings.warn(said, RuntimeWarning, stacklevel=3)
                return False
            self._trials[dtype] = answer
        return self._trials[dtype]

    def is_fp64_supported(self) -> bool:
        """Whether the device supports float64; nearly all devices do, mps does not."""
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the floating point types in which a model can be trained,
        `torch.float32` first.
        """
        half = (
            [self._torch.float16] if self._if_supported(self.is_fp16_supported) else []
        )
        brain = (
            [self._torch.bfloat16] if self._if_supported(self.is_bf16_supported) else []
        )
        return [self._torch.float32, *half, *brain]

    def training_dtype(self) -> torch.dtype:
        """Return the data type to train in, for `autocast` and `grad_scaler`.

        It is `torch.bfloat16` if the hardware computes in it (`is_bf16_native`); else
        `torch.float16` if a model can be trained in it and torch can scale losses on
        the device, which is tried once; else `torch.float32`. An emulated bfloat16 is
        not chosen: it saves memory but is slower.
        """
        if self._if_supported(self.is_bf16_native):
            return self._torch.bfloat16
        halves = self._if_supported(self.is_fp16_supported) and self._scales_losses
        return self._torch.float16 if halves else self._torch.float32

    @cached_property
    def _scales_losses(self) -> bool:
        """Whether `torch.amp.GradScaler` works on the current device, which is started:
        tried once.

        Without it, training in float16 fails: small gradients become 0.
        """
        # A kernel that the device lacks; a Metal without float64.
        with suppress(NotImplementedError, TypeError):
            weight = self._torch.ones(1, device=self._device_type, requires_grad=True)
            scaler = self._torch.amp.GradScaler(self._device_type, init_scale=2.0)
            scaler.scale(weight.sum()).backward()
            # In an optimizer's place: making one of torch's imports its compiler, a
            # second or two.
            scaler.unscale_(SimpleNamespace(param_groups=[{"params": [weight]}]))
            return bool(weight.grad.item() == 1.0)
        return False

    def grad_scaler(
        self, dtype: torch.dtype | None = None, **options: Unpack[GradScalerOptions]
    ) -> torch.amp.GradScaler:
        """Return a `torch.amp.GradScaler` for training in `dtype`, by default in
        `training_dtype()`.

        It is disabled, so its calls cost nothing, unless `dtype` is `torch.float16`,
        whose gradients can become too small for the type. `options` are passed to the
        scaler.
        """
        dtype = self.training_dtype() if dtype is None else dtype
        enabled = options.pop("enabled", True) and dtype is self._torch.float16
        return self._torch.amp.GradScaler(self._device_type, enabled=enabled, **options)

    def autocast(
        self, dtype: torch.dtype | None = None, enabled: bool = True
    ) -> AbstractContextManager[Any]:
        """Return `torch.autocast` for this device type; without `dtype`, in torch's
        default type for the device.
        """
        return self._torch.autocast(self._device_type, dtype=dtype, enabled=enabled)

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is on a device of this accelerator's device type."""
        return tensor.device.type == self._device_type

    BFloat16Tensor: Callable[..., torch.Tensor] = _tensor_type(
        "BFloat16Tensor", "bfloat16"
    )
    ByteTensor: Callable[..., torch.Tensor] = _tensor_type("ByteTensor", "uint8")
    DoubleTensor: Callable[..., torch.Tensor] = _tensor_type("DoubleTensor", "float64")
    FloatTensor: Callable[..., torch.Tensor] = _tensor_type("FloatTensor", "float32")
    HalfTensor: Callable[..., torch.Tensor] = _tensor_type("HalfTensor", "float16")
    IntTensor: Callable[..., torch.Tensor] = _tensor_type("IntTensor", "int32")
    LongTensor: Callable[..., torch.Tensor] = _tensor_type("LongTensor", "int64")


def computes_in(torch: Any, device_type: str, dtype: Any) -> bool | Exception:
    """Compute a matrix product in `dtype` on the current device; return whether it is
    right, or an error.

    The device is started. An error is returned if it does not come from the data type:
    the device is out of memory, or a product in float32 fails too.
    """
    answer = _product(torch, device_type, dtype)
    if (
        isinstance(answer, bool)
        or _product(torch, device_type, torch.float32) is not True
    ):
        return answer
    # The device computes: what had failed in passing succeeds now, and what fails again
    # is the type's fault.
    answer = _product(torch, device_type, dtype)
    return answer if isinstance(answer, (bool, torch.OutOfMemoryError)) else False


def _product(torch: Any, device_type: str, dtype: Any) -> bool | Exception:
    try:
        ones = torch.ones((2, 2), dtype=dtype, device=device_type)
        return bool((ones @ ones).sum().item() == 8)
    except (RuntimeError, TypeError) as error:
        return error
