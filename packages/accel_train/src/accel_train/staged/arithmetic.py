"""Reduce tensors of every data type over gloo, by converting types that gloo lacks to one that it has.

If gloo has the type, results equal gloo's bit for bit. bool follows NCCL: a sum is "any", a product is "all".
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import Tensor

# Not torch.distributed's names: some are private there, and these are the same in every version.
from torch._C import _distributed_c10d as c10d

from accel_train.staged.host import bytes_of

__all__ = ["Reduction", "copy_bytes", "reduction_for"]

_ReduceOp = c10d.ReduceOp
#: Data types that every gloo reduces.
_GLOO_TYPES = frozenset(
    (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
    )
)
#: The wider type in which a type is reduced. The low bits of sums and products of integers are the same.
_WIDER_TYPE = {
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.bfloat16: torch.float32,
}
_BITWISE_OPS = ("BAND", "BOR", "BXOR")
#: The operation on 0 and 1 that equals one on bools.
_UINT8_OP_OF_BOOL = {
    "SUM": "MAX", "MAX": "MAX", "BOR": "MAX", "PRODUCT": "MIN", "MIN": "MIN", "BAND": "MIN", "BXOR": "BXOR",
}  # fmt: skip


class Reduction(NamedTuple):
    """The steps by which ranks reduce tensors of one type: before gloo, gloo's operation, and after it."""

    #: gloo's operation, an element of `ReduceOp.RedOpType`.
    op: Any
    #: Returns the tensor for gloo, of a contiguous host tensor; it may use the same memory.
    to_gloo: Callable[[Tensor], Tensor]
    #: Writes gloo's result into the host tensor; `None` if `to_gloo` returned the same memory.
    from_gloo: Callable[[Tensor, Tensor], None] | None
    #: The last step, on the host tensor in its own type; `None` if there is none.
    finish: Callable[[Tensor], object] | None = None

    def write_result(
        self, host: Tensor, reduced: Tensor, *, separate_memory: bool = False
    ) -> None:
        """Write gloo's result `reduced` into the host tensor, and do the last step.

        `separate_memory`: gloo has written to other memory than that of `host`.
        """
        if self.from_gloo is not None:
            self.from_gloo(host, reduced)
        elif separate_memory:
            copy_bytes(host, reduced)
        if self.finish is not None:
            self.finish(host)


def reduction_for(dtype: torch.dtype, op: Any, ranks: int) -> Reduction:
    """Return the steps by which `ranks` ranks reduce tensors of `dtype` with `op`.

    Raises `ValueError` for an operation that the type does not support, with torch's message if torch has
    one.
    """
    name = getattr(op, "op", op).name
    if name == "PREMUL_SUM":
        factor = op.__getstate__()[1]
        return _premultiplied_sum(dtype, factor, ranks)
    if name == "AVG":
        return _average(dtype, ranks)
    return _plain_reduction(dtype, name)


def _premultiplied_sum(dtype: torch.dtype, factor: Any, ranks: int) -> Reduction:
    """Return a sum of tensors that are multiplied with `factor` first."""
    summed = reduction_for(dtype, _ReduceOp.SUM, ranks)

    def to_gloo(host: Tensor) -> Tensor:
        host_factor = factor.cpu() if isinstance(factor, Tensor) else factor
        return summed.to_gloo(host.mul(host_factor))

    return summed._replace(to_gloo=to_gloo, from_gloo=summed.from_gloo or copy_bytes)


def _average(dtype: torch.dtype, ranks: int) -> Reduction:
    """Return a sum that is divided by the number of ranks; integers are rounded toward 0."""
    if dtype is torch.bool:
        raise _undefined("AVG", dtype)
    rounding = None if dtype.is_floating_point or dtype.is_complex else "trunc"
    summed = reduction_for(dtype, _ReduceOp.SUM, ranks)
    return summed._replace(finish=lambda host: _divide(host, ranks, rounding))


def _plain_reduction(dtype: torch.dtype, name: str) -> Reduction:
    """Return the steps for one of gloo's own operations, by its name in `ReduceOp`."""
    if not _is_defined(name, dtype):
        raise _undefined(name, dtype)
    op = getattr(_ReduceOp, name)
    if dtype is torch.bool:
        uint8_op = getattr(_ReduceOp, _UINT8_OP_OF_BOOL[name])
        reduction = Reduction(uint8_op, lambda host: host.view(torch.uint8), None)
    elif dtype.is_complex:
        reduction = Reduction(op, _as_real_row, None)
    elif dtype in _GLOO_TYPES or (dtype is torch.bfloat16 and _gloo_sums(dtype)):
        reduction = Reduction(op, lambda host: host, None)
    elif dtype is torch.uint64:
        reduction = _uint64_reduction(name)
    else:
        reduction = _reduction_in_wider_type(op, dtype)
    return reduction


def _is_defined(name: str, dtype: torch.dtype) -> bool:
    """Return whether the operation has a meaning for the dtype: complex numbers have a sum only."""
    if dtype.is_complex:
        return name == "SUM"
    return not (name in _BITWISE_OPS and dtype.is_floating_point)


def _as_real_row(host: Tensor) -> Tensor:
    """Return a complex tensor as one row of real numbers, in the same memory."""
    return torch.view_as_real(host).view(-1)


def _reduction_in_wider_type(op: Any, dtype: torch.dtype) -> Reduction:
    """Return a reduction in the wider type that gloo has. Raises `ValueError` if there is none."""
    wider_type = _WIDER_TYPE.get(dtype)
    if wider_type is None:
        if not dtype.is_floating_point:
            raise ValueError(f"tensors of {dtype} cannot be reduced")
        wider_type = torch.float32
    return Reduction(op, lambda host: host.to(wider_type), _copy_narrowed)


def _undefined(name: str, dtype: torch.dtype) -> ValueError:
    """Return the error for an operation that the type does not support."""
    return ValueError(f"ReduceOp.{name} is not defined for {dtype}")


def _divide(host: Tensor, divisor: int, rounding: str | None) -> None:
    """Divide a tensor in place, also of types that torch cannot divide. `rounding`: as `rounding_mode`."""
    if host.is_complex():
        # A division of complex numbers would round in another way.
        torch.view_as_real(host).div_(divisor)
    elif host.element_size() == 1 and host.is_floating_point():
        # torch has no division of 8-bit floats.
        host.copy_(host.to(torch.float32).div_(divisor))
    elif host.dtype is torch.uint64:
        _divide_uint64(host, divisor)
    elif host.dtype in (torch.uint16, torch.uint32):
        host.copy_(host.to(torch.int64).div_(divisor, rounding_mode="trunc"))
    else:
        host.div_(divisor, rounding_mode=rounding)


def _divide_uint64(host: Tensor, divisor: int) -> None:
    """Divide a uint64 tensor in place by int64 operations, rounding toward 0."""
    bits = host.view(torch.int64)
    # Half of the number fits in int64. Twice its quotient is the result, or one too small.
    half = (bits >> 1) & torch.iinfo(torch.int64).max
    quotient = half.div_(divisor, rounding_mode="trunc") << 1
    remainder = bits - quotient * divisor
    bits.copy_(quotient + (remainder >= divisor))


def copy_bytes(host: Tensor, reduced: Tensor) -> None:
    """Copy the bytes of `reduced`, a result in the data type of `host`, to `host`."""
    bytes_of(host).copy_(bytes_of(reduced))


def _copy_narrowed(host: Tensor, reduced: Tensor) -> None:
    """Copy a result in a wider type to `host` in its narrow type; integers modulo its range."""
    if host.dtype.is_floating_point:
        host.copy_(reduced)
        return
    # Copy the low bytes: a cast of an integer that is out of range is undefined in C++.
    wide_bytes = bytes_of(reduced).view(-1, reduced.element_size())
    if sys.byteorder == "little":
        low_bytes = slice(0, host.element_size())
    else:
        low_bytes = slice(-host.element_size(), None)
    bytes_of(host).view(-1, host.element_size()).copy_(wide_bytes[:, low_bytes])


def _uint64_reduction(name: str) -> Reduction:
    """Return a reduction of uint64 as int64, which has the same bits.

    For `MIN` and `MAX` the highest bit is inverted before and after, which makes the order the same.
    """
    op = getattr(_ReduceOp, name)
    if name not in ("MIN", "MAX"):
        return Reduction(op, lambda host: host.view(torch.int64), None)
    highest_bit = torch.iinfo(torch.int64).min

    def to_gloo(host: Tensor) -> Tensor:
        return host.view(torch.int64).bitwise_xor(highest_bit)

    def from_gloo(host: Tensor, reduced: Tensor) -> None:
        host.view(torch.int64).copy_(reduced.bitwise_xor_(highest_bit))

    return Reduction(op, to_gloo, from_gloo)


@functools.lru_cache
def _gloo_sums(dtype: torch.dtype) -> bool:
    """Return whether this torch's gloo sums tensors of that type, by a try in a group of one rank."""
    gloo: Any = c10d.ProcessGroupGloo(c10d.HashStore(), 0, 1, timedelta(seconds=30))
    with suppress(RuntimeError):
        gloo.allreduce([torch.ones(1, dtype=dtype)], c10d.AllreduceOptions()).wait()
        return True
    return False
