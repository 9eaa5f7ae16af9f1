"""Section of the interface: data types, and the legacy tensor types."""

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
    """A replacement for `torch.<device>.FloatTensor`: call it to create a tensor, or
    use it with `isinstance`.

    `FloatTensor([1, 2])` contains the given values, `FloatTensor()` is empty, and
    `FloatTensor(2, 3)` or a `torch.Size` creates an uninitialized tensor, as torch's
    types do. A single whole number raises `TypeError`, because torch's type reads it as
    a size, but the types of most vendors read it as a value. Keywords are those of
    `torch.tensor`.

    The tensor is created on the current device. If the device does not support the data
    type, the call raises `UnsupportedError`, and no tensor is an instance of the type.
    """

    def __init__(self, accelerator: Dtypes, name: str, dtype: torch.dtype) -> None:
        self._accelerator = accelerator
        self._name = name
        #: The data type of the tensors.
        self.dtype = dtype

    def __call__(self, *data: Any, **options: Any) -> Any:
        """Create a tensor of this data type."""
        torch = self._accelerator._torch
        device_type = self._accelerator.device_type
        if self.dtype is torch.float64 and not self._accelerator.is_fp64_supported():
            raise self._accelerator._unsupported(
                self._name, "the device has no float64"
            )
        options = {"dtype": self.dtype, "device": device_type, **options}
        if not data:
            if "data" in options:  # FloatTensor(data=[1, 2])
                return torch.tensor(**options)
            return torch.empty(0, **options)
        if len(data) > 1:  # FloatTensor(2, 3)
            return torch.empty(*data, **options)
        (value_or_size,) = data
        if isinstance(value_or_size, torch.Size):
            return torch.empty(value_or_size, **options)
        if type(value_or_size) is int:
            call_with_value = f"{self._name}([{value_or_size}])"
            call_with_size = (
                f"torch.empty({value_or_size}, dtype={self.dtype}, "
                f"device={device_type!r})"
            )
            raise TypeError(
                f"{self!r}({value_or_size}) could mean one value or a size. For the value, "
                f"write {call_with_value}. For the size, write {call_with_size}"
            )
        return torch.tensor(value_or_size, **options)

    def __instancecheck__(self, tensor: Any) -> bool:
        if not isinstance(tensor, self._accelerator._torch.Tensor):
            return False
        return tensor.dtype == self.dtype and self._accelerator.on_accelerator(tensor)

    def __repr__(self) -> str:
        return f"{self._accelerator.device_type}.{self._name}"


def _tensor_type(name: str, dtype: str) -> Any:
    """Return a property whose value is the `TensorType` of an accelerator."""
    doc = (
        f"The legacy type of {dtype} tensors. Call it with data or a size to create a "
        "tensor on the current device."
    )

    def get_type(self: Dtypes) -> TensorType:
        return TensorType(self, name, getattr(self._torch, dtype))

    return property(get_type, doc=doc)


class Dtypes(Devices):
    """The members for data types in which a model can be trained, and for the device's
    tensor types.
    """

    #: Whether a model can be trained in float16 on each of the vendor's devices. If so,
    #: `is_fp16_supported` starts no device.
    _has_fp16_on_every_device = False

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Return whether a model can be trained in bfloat16 on this device, natively or
        emulated.

        A trainer may stop with an error if this is False. To find out whether bfloat16
        is fast, use `is_bf16_native`; `including_emulation=False` returns the same
        value. If the vendor does not report the support, a matrix product is tried
        once. If the product fails for a reason other than the data type, the next call
        tries again.
        """
        if not including_emulation:
            return self.is_bf16_native()
        return self._is_dtype_supported("is_bf16_supported", "bfloat16")

    def is_bf16_native(self) -> bool:
        """Return whether the hardware computes in bfloat16. Otherwise bfloat16 is
        emulated, and slower.

        If the vendor does not distinguish the two, this returns `is_bf16_supported()`.
        """
        query = self._vendor_attribute("is_bf16_supported")
        if query is None:
            return self.is_bf16_supported()
        return self._is_supported_natively(query)

    def is_fp16_supported(self) -> bool:
        """Return whether a model can be trained in float16 on this device. A trainer
        may stop with an error if this is False.

        The result comes from the vendor's function, or from a trial as for bfloat16. A
        plugin for devices with known support overrides this member or sets
        `_has_fp16_on_every_device`, so that the query does not start the device.
        """
        if self._has_fp16_on_every_device:
            return self.is_available()
        return self._is_dtype_supported("is_fp16_supported", "float16")

    def is_fp8_supported(self) -> bool:
        """Return whether the hardware multiplies matrices in an 8-bit floating point
        type. The result is False if the vendor does not report it.
        """
        query = self._vendor_attribute("is_fp8_supported")
        return query is not None and self._is_supported_natively(query)

    def _is_supported_natively(self, query: Callable[..., Any]) -> bool:
        """Return the vendor's answer about a data type, without emulation, which
        several vendors include by default.
        """
        if not self.is_available():
            return False
        if has_parameter(query, "including_emulation"):
            query = partial(query, including_emulation=False)
        return bool(self._call_if_supported(query))

    def _is_dtype_supported(self, name: str, dtype: str) -> bool:
        """Return whether a model can be trained in `dtype`: the result of the vendor's
        function called `name` or, if there is none, of a trial.
        """
        if self.device_module is None or not self.is_available():
            return False
        query = self._vendor_attribute(name)
        if query is not None:
            is_supported = self._call_if_supported(query)
            if is_supported is not None:
                return bool(is_supported)
        if dtype in self._dtype_trials:
            return self._dtype_trials[dtype]
        result = try_dtype(self._torch, self._device_type, getattr(self._torch, dtype))
        if isinstance(result, Exception):
            first_line, _, _ = str(result).partition("\n")
            warnings.warn(
                f"{self.name}: {name}() returns False, because the trial of torch.{dtype} "
                "failed. The next call tries again. The error was: "
                f"{type(result).__name__}: {first_line}",
                RuntimeWarning,
                stacklevel=3,
            )
            return False
        self._dtype_trials[dtype] = result
        return result

    def is_fp64_supported(self) -> bool:
        """Return whether the device supports float64. Apple's GPUs (mps) do not."""
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the floating point types in which a model can be trained, with
        `torch.float32` first.
        """
        dtypes = [self._torch.float32]
        if self._call_if_supported(self.is_fp16_supported):
            dtypes.append(self._torch.float16)
        if self._call_if_supported(self.is_bf16_supported):
            dtypes.append(self._torch.bfloat16)
        return dtypes

    def training_dtype(self) -> torch.dtype:
        """Return the data type to train in, for `autocast` and `grad_scaler`.

        The result is `torch.bfloat16` if the hardware computes in it
        (`is_bf16_native`). Otherwise it is `torch.float16` if a model can be trained in
        float16 and torch can scale losses on the device, which is tried once. Otherwise
        it is `torch.float32`. An emulated bfloat16 is not chosen, because it saves
        memory but is slower.
        """
        if self._call_if_supported(self.is_bf16_native):
            return self._torch.bfloat16
        has_fp16 = self._call_if_supported(self.is_fp16_supported)
        if has_fp16 and self._can_scale_losses:
            return self._torch.float16
        return self._torch.float32

    @cached_property
    def _can_scale_losses(self) -> bool:
        """Whether `torch.amp.GradScaler` works on the current device. The trial runs
        once and starts the device.

        Without it, training in float16 fails, because small gradients become 0.
        """
        # The device may lack a kernel, and Metal lacks float64.
        with suppress(NotImplementedError, TypeError):
            weight = self._torch.ones(1, device=self._device_type, requires_grad=True)
            scaler = self._torch.amp.GradScaler(self._device_type, init_scale=2.0)
            loss = weight.sum()
            scaler.scale(loss).backward()
            # A namespace replaces an optimizer, because creating an optimizer of torch
            # imports torch's compiler, which takes a second or two.
            optimizer = SimpleNamespace(param_groups=[{"params": [weight]}])
            scaler.unscale_(optimizer)
            return bool(weight.grad.item() == 1.0)
        return False

    def grad_scaler(
        self, dtype: torch.dtype | None = None, **options: Unpack[GradScalerOptions]
    ) -> torch.amp.GradScaler:
        """Return a `torch.amp.GradScaler` for training in `dtype`, by default in
        `training_dtype()`.

        The scaler is enabled only if `dtype` is `torch.float16`, whose gradients can
        become too small for the type. The calls of a disabled scaler cost nothing.
        `options` are passed to the scaler.
        """
        if dtype is None:
            dtype = self.training_dtype()
        enabled = options.pop("enabled", True) and dtype is self._torch.float16
        return self._torch.amp.GradScaler(self._device_type, enabled=enabled, **options)

    def autocast(
        self,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> AbstractContextManager[Any]:
        """Return `torch.autocast` for this device type. Without `dtype`, torch's
        default type for the device is used.
        """
        return self._torch.autocast(
            self._device_type,
            dtype=dtype,
            enabled=enabled,
            cache_enabled=cache_enabled,
        )

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is on a device of this accelerator's device type."""
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


def try_dtype(torch: Any, device_type: str, dtype: Any) -> bool | Exception:
    """Compute a matrix product in `dtype` on the current device, and return whether the
    result is correct.

    This starts the device. If the product fails for a reason other than the data type,
    the error is returned. That is the case if the device is out of memory, or if a
    product in float32 fails too.
    """
    result = _try_matrix_product(torch, device_type, dtype)
    if isinstance(result, bool):
        return result
    works_in_float32 = _try_matrix_product(torch, device_type, torch.float32) is True
    if not works_in_float32:
        return result
    # The device works in float32. A failure that occurs again is therefore caused by the
    # data type.
    result = _try_matrix_product(torch, device_type, dtype)
    if isinstance(result, (bool, torch.OutOfMemoryError)):
        return result
    return False


def _try_matrix_product(torch: Any, device_type: str, dtype: Any) -> bool | Exception:
    """Multiply two matrices of ones, and return whether the result is correct, or the
    error from torch.
    """
    try:
        ones = torch.ones((2, 2), dtype=dtype, device=device_type)
        # Each of the four elements of the product is 2.
        return bool((ones @ ones).sum().item() == 8)
    except (RuntimeError, TypeError) as error:
        return error
