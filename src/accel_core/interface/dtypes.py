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
        torch = self._accelerator._torch
        device_type = self._accelerator.device_type
        if self.dtype is torch.float64 and not self._accelerator.is_fp64_supported():
            raise self._accelerator._unsupported(
                self._name, "the device has no float64"
            )
        options = {"dtype": self.dtype, "device": device_type, **options}
        if not data:
            if "data" in options:
                return torch.tensor(**options)
            return torch.empty(0, **options)
        first = data[0]
        if len(data) > 1 or isinstance(first, torch.Size):
            return torch.empty(*data, **options)
        if type(first) is int:
            raise TypeError(
                f"{self!r}({first}) could mean one value or {first} elements: write "
                f"{self._name}([{first}]) for the value, torch.empty({first}, "
                f"dtype={self.dtype}, device={device_type!r}) for the elements"
            )
        return torch.tensor(first, **options)

    def __instancecheck__(self, tensor: Any) -> bool:
        if not isinstance(tensor, self._accelerator._torch.Tensor):
            return False
        return tensor.dtype == self.dtype and self._accelerator.on_accelerator(tensor)

    def __repr__(self) -> str:
        return f"{self._accelerator.device_type}.{self._name}"


def _tensor_type(name: str, dtype: str) -> Any:
    doc = f"Makes {dtype} tensors on the current device, as torch's old type: of data or of a size."
    return property(
        lambda self: TensorType(self, name, getattr(self._torch, dtype)), doc=doc
    )


class Dtypes(Devices):
    """Data types in which a model can be trained, and tensor types of the device."""

    #: Whether a model can be trained in float16 on each of the vendor's devices: then
    #: `is_fp16_supported` starts no device.
    _fp16_on_every_device = False

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Return whether a model can be trained in bfloat16 on this device, natively or
        emulated.

        A trainer may refuse to train if this is False. `is_bf16_native` says whether it
        is fast, and `including_emulation=False` returns its answer. If the vendor does
        not tell, a matrix product is tried once, and again later if it failed for
        another reason than the data type.
        """
        if not including_emulation:
            return self.is_bf16_native()
        return self._computes("is_bf16_supported", "bfloat16")

    def is_bf16_native(self) -> bool:
        """Return whether the hardware computes in bfloat16; otherwise it is emulated,
        and slower.

        If the vendor does not distinguish the two, this returns `is_bf16_supported()`.
        """
        query = self._lookup("is_bf16_supported")
        if query is None:
            return self.is_bf16_supported()
        return self._is_native(query)

    def is_fp16_supported(self) -> bool:
        """Return whether a model can be trained in float16 on this device; a trainer
        may refuse if this is False.

        It is the vendor's answer, or found as for bfloat16. A plugin that knows it
        overrides this, or sets `_fp16_on_every_device`, so that asking does not start
        the device.
        """
        if self._fp16_on_every_device:
            return self.is_available()
        return self._computes("is_fp16_supported", "float16")

    def is_fp8_supported(self) -> bool:
        """Return whether the hardware multiplies matrices in an 8-bit floating point
        type; False if the vendor does not tell.
        """
        query = self._lookup("is_fp8_supported")
        return query is not None and self._is_native(query)

    def _is_native(self, query: Callable[..., Any]) -> bool:
        """The vendor's answer about a data type, without the emulation that several
        vendors count by default.
        """
        if not self.is_available():
            return False
        if has_parameter(query, "including_emulation"):
            query = partial(query, including_emulation=False)
        return bool(self._if_supported(query))

    def _computes(self, name: str, dtype: str) -> bool:
        """The vendor's answer to the query `name`; without one, that of a trial."""
        if self.device_module is None or not self.is_available():
            return False
        query = self._lookup(name)
        answer = None if query is None else self._if_supported(query)
        if answer is not None:
            return bool(answer)
        if dtype in self._trials:
            return self._trials[dtype]
        result = computes_in(
            self._torch, self._device_type, getattr(self._torch, dtype)
        )
        if isinstance(result, Exception):
            first_line = str(result).partition("\n")[0]
            warnings.warn(
                f"{self.name}: whether it computes in torch.{dtype} could not be "
                "tried, so the answer is no until the next call: "
                f"{type(result).__name__}: {first_line}",
                RuntimeWarning,
                stacklevel=3,
            )
            return False
        self._trials[dtype] = result
        return result

    def is_fp64_supported(self) -> bool:
        """Return whether the device supports float64; nearly all devices do, mps does
        not.
        """
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the floating point types in which a model can be trained,
        `torch.float32` first.
        """
        dtypes = [self._torch.float32]
        if self._if_supported(self.is_fp16_supported):
            dtypes.append(self._torch.float16)
        if self._if_supported(self.is_bf16_supported):
            dtypes.append(self._torch.bfloat16)
        return dtypes

    def training_dtype(self) -> torch.dtype:
        """Return the data type to train in, for `autocast` and `grad_scaler`.

        It is `torch.bfloat16` if the hardware computes in it (`is_bf16_native`); else
        `torch.float16` if a model can be trained in it and torch can scale losses on
        the device, which is tried once; else `torch.float32`. An emulated bfloat16 is
        not chosen: it saves memory but is slower.
        """
        if self._if_supported(self.is_bf16_native):
            return self._torch.bfloat16
        if self._if_supported(self.is_fp16_supported) and self._scales_losses:
            return self._torch.float16
        return self._torch.float32

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
        """Return `torch.autocast` for this device type; without `dtype`, in torch's
        default type for the device.
        """
        return self._torch.autocast(
            self._device_type,
            dtype=dtype,
            enabled=enabled,
            cache_enabled=cache_enabled,
        )

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is on a device of this accelerator's device type.
        """
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
    """Compute a matrix product in `dtype` on the current device; return whether the
    result is correct.

    The device is started. If the product fails for another reason than the data type,
    the error is returned: the device is out of memory, or a product in float32 fails
    too.
    """
    result = _product(torch, device_type, dtype)
    if isinstance(result, bool):
        return result
    if _product(torch, device_type, torch.float32) is not True:
        return result
    # The device computes: a passing failure does not recur, and one that recurs comes
    # from the type.
    result = _product(torch, device_type, dtype)
    if isinstance(result, (bool, torch.OutOfMemoryError)):
        return result
    return False


def _product(torch: Any, device_type: str, dtype: Any) -> bool | Exception:
    try:
        ones = torch.ones((2, 2), dtype=dtype, device=device_type)
        return bool((ones @ ones).sum().item() == 8)
    except (RuntimeError, TypeError) as error:
        return error
