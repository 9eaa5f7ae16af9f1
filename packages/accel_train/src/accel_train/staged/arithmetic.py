"""Reduce tensors of every data type over gloo, by converting data types that gloo does not support.

For a data type that gloo supports, results are bit-identical to gloo's. For bool, results equal NCCL's: the
sum is True if any value is True, and the product is True if all values are True.
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

# torch.distributed is not used, because some of these names are private there in some versions of torch.
from torch._C import _distributed_c10d as c10d

from accel_train.staged.host import bytes_of

__all__ = ["Reduction", "copy_bytes", "reduction_for"]

_ReduceOp = c10d.ReduceOp
#: Data types that every version of gloo reduces.
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
#: For each data type, the wider type in which gloo reduces it. The low bits of integer results are the same.
_WIDER_TYPE = {
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.bfloat16: torch.float32,
}
_BITWISE_OPS = ("BAND", "BOR", "BXOR")
#: For each operation on bools, the equal operation on uint8 values of 0 and 1.
_UINT8_OP_OF_BOOL = {
    "SUM": "MAX", "MAX": "MAX", "BOR": "MAX", "PRODUCT": "MIN", "MIN": "MIN", "BAND": "MIN", "BXOR": "BXOR",
}  # fmt: skip


class Reduction(NamedTuple):
    """The steps that reduce tensors of one data type: conversion, gloo's operation, and conversion back."""

    #: gloo's operation, an element of `ReduceOp.RedOpType`.
    op: Any
    #: Converts a contiguous host tensor to the tensor for gloo, which may share the host tensor's memory.
    to_gloo: Callable[[Tensor], Tensor]
    #: Writes gloo's result into the host tensor, or `None` if `to_gloo` returns a tensor with the same
    #: memory.
    from_gloo: Callable[[Tensor, Tensor], None] | None
    #: The last step, which changes the host tensor in place, or `None` if no such step is needed.
    finish: Callable[[Tensor], object] | None = None

    def write_result(
        self, host: Tensor, reduced: Tensor, *, separate_memory: bool = False
    ) -> None:
        """Write gloo's result `reduced` to the tensor `host`, in the data type of `host`, and call `finish`.

        `separate_memory` must be True if `from_gloo` is `None` and `reduced` and `host` do not share memory.
        """
        if self.from_gloo is not None:
            self.from_gloo(host, reduced)
        elif separate_memory:
            copy_bytes(host, reduced)
        if self.finish is not None:
            self.finish(host)


def reduction_for(dtype: torch.dtype, op: Any, ranks: int) -> Reduction:
    """Return the steps that reduce tensors of the data type `dtype` with the reduce operation `op`.

    `ranks` is the number of ranks. Raises `ValueError` if the operation is not defined for `dtype`.
    """
    # torch passes either a `ReduceOp`, which has the operation as its attribute `op`, or the operation.
    name = getattr(op, "op", op).name
    if name == "PREMUL_SUM":
        # torch has no attribute for the factor.
        _, factor = op.__getstate__()
        return _premultiplied_sum(dtype, factor, ranks)
    if name == "AVG":
        return _average(dtype, ranks)
    return _plain_reduction(dtype, name)


def _premultiplied_sum(dtype: torch.dtype, factor: Any, ranks: int) -> Reduction:
    """Return the reduction that multiplies each tensor by `factor` and then sums the products."""
    summed = reduction_for(dtype, _ReduceOp.SUM, ranks)

    def to_gloo(host: Tensor) -> Tensor:
        # The factor is a number or a tensor on any device.
        host_factor = factor.cpu() if isinstance(factor, Tensor) else factor
        return summed.to_gloo(host.mul(host_factor))

    # The product has memory of its own, so gloo's result must be copied in any case.
    from_gloo = summed.from_gloo
    if from_gloo is None:
        from_gloo = copy_bytes
    return summed._replace(to_gloo=to_gloo, from_gloo=from_gloo)


def _average(dtype: torch.dtype, ranks: int) -> Reduction:
    """Return the reduction to the mean over `ranks` ranks. Integers are rounded toward 0."""
    if dtype is torch.bool:
        raise _undefined_op_error("AVG", dtype)
    is_integer = not (dtype.is_floating_point or dtype.is_complex)
    rounding = "trunc" if is_integer else None
    summed = reduction_for(dtype, _ReduceOp.SUM, ranks)

    def divide_by_ranks(host: Tensor) -> None:
        _divide(host, ranks, rounding)

    return summed._replace(finish=divide_by_ranks)


def _plain_reduction(dtype: torch.dtype, name: str) -> Reduction:
    """Return the steps that reduce tensors of `dtype` with the operation `ReduceOp.NAME` of gloo."""
    if not _is_defined(name, dtype):
        raise _undefined_op_error(name, dtype)
    op = getattr(_ReduceOp, name)
    if dtype is torch.bool:
        op_of_bool = getattr(_ReduceOp, _UINT8_OP_OF_BOOL[name])
        return Reduction(
            op_of_bool, to_gloo=lambda host: host.view(torch.uint8), from_gloo=None
        )
    if dtype.is_complex:
        return Reduction(op, to_gloo=_as_real_row, from_gloo=None)
    if dtype in _GLOO_TYPES or (dtype is torch.bfloat16 and _can_gloo_sum(dtype)):
        return Reduction(op, to_gloo=lambda host: host, from_gloo=None)
    if dtype is torch.uint64:
        return _uint64_reduction(name)
    return _reduction_in_wider_type(op, dtype)


def _is_defined(name: str, dtype: torch.dtype) -> bool:
    """Return whether the operation named `name` is defined for `dtype`."""
    if dtype.is_complex:
        return name == "SUM"
    if dtype.is_floating_point:
        return name not in _BITWISE_OPS
    return True


def _as_real_row(host: Tensor) -> Tensor:
    """Return a complex tensor as one row of real numbers, in the same memory."""
    return torch.view_as_real(host).view(-1)


def _reduction_in_wider_type(op: Any, dtype: torch.dtype) -> Reduction:
    """Return a reduction in a wider data type that gloo supports.

    Raises `ValueError` if there is no such type for `dtype`.
    """
    wider_type = _WIDER_TYPE.get(dtype)
    if wider_type is None:
        if not dtype.is_floating_point:
            raise ValueError(f"tensors of {dtype} cannot be reduced")
        wider_type = torch.float32  # For 8-bit floats.
    return Reduction(
        op, to_gloo=lambda host: host.to(wider_type), from_gloo=_copy_narrowed
    )


def _undefined_op_error(name: str, dtype: torch.dtype) -> ValueError:
    """Return the error for an operation that is not defined for `dtype`."""
    return ValueError(f"ReduceOp.{name} is not defined for {dtype}")


def _divide(host: Tensor, divisor: int, rounding: str | None) -> None:
    """Divide `host` in place by `divisor`, including data types that torch cannot divide.

    `rounding` is the `rounding_mode` of `torch.div`.
    """
    if host.is_complex():
        # A complex division would round differently.
        torch.view_as_real(host).div_(divisor)
    elif host.element_size() == 1 and host.is_floating_point():
        # torch cannot divide 8-bit floats.
        host.copy_(host.to(torch.float32).div_(divisor))
    elif host.dtype is torch.uint64:
        _divide_uint64(host, divisor)
    elif host.dtype in (torch.uint16, torch.uint32):
        host.copy_(host.to(torch.int64).div_(divisor, rounding_mode="trunc"))
    else:
        host.div_(divisor, rounding_mode=rounding)


def _divide_uint64(host: Tensor, divisor: int) -> None:
    """Divide the uint64 tensor `host` in place with int64 operations, rounding toward 0."""
    bits = host.view(torch.int64)
    # Half of each number fits in int64. Twice the quotient of the half is the result, or the result minus 1.
    halves = (bits >> 1) & torch.iinfo(torch.int64).max
    quotient = halves.div_(divisor, rounding_mode="trunc") << 1
    remainder = bits - quotient * divisor
    is_quotient_too_small = remainder >= divisor
    bits.copy_(quotient + is_quotient_too_small)


def copy_bytes(host: Tensor, reduced: Tensor) -> None:
    """Copy the bytes of `reduced` to `host`. Both tensors must have the same data type."""
    bytes_of(host).copy_(bytes_of(reduced))


def _copy_narrowed(host: Tensor, reduced: Tensor) -> None:
    """Copy `reduced`, which has a wider data type, to `host`. Integers wrap around."""
    if host.dtype.is_floating_point:
        host.copy_(reduced)
        return
    # Copy the low bytes: a cast of an integer that is out of range is undefined in C++.
    size = host.element_size()
    bytes_of_elements = bytes_of(reduced).view(-1, reduced.element_size())
    if sys.byteorder == "little":
        low_bytes = bytes_of_elements[:, :size]
    else:
        low_bytes = bytes_of_elements[:, -size:]
    bytes_of(host).view(-1, size).copy_(low_bytes)


def _uint64_reduction(name: str) -> Reduction:
    """Return a reduction of uint64 tensors that treats their bits as int64.

    For `MIN` and `MAX`, the highest bit is inverted before and after the reduction, because int64 numbers
    with inverted highest bits have the same order as the uint64 numbers.
    """
    op = getattr(_ReduceOp, name)
    if name not in ("MIN", "MAX"):
        # The other operations give the same bits for signed numbers.
        return Reduction(
            op, to_gloo=lambda host: host.view(torch.int64), from_gloo=None
        )
    # With this bit inverted, signed numbers have the order of the unsigned numbers.
    highest_bit = torch.iinfo(torch.int64).min

    def to_gloo(host: Tensor) -> Tensor:
        return host.view(torch.int64).bitwise_xor(highest_bit)

    def from_gloo(host: Tensor, reduced: Tensor) -> None:
        host.view(torch.int64).copy_(reduced.bitwise_xor_(highest_bit))

    return Reduction(op, to_gloo=to_gloo, from_gloo=from_gloo)


@functools.lru_cache
def _can_gloo_sum(dtype: torch.dtype) -> bool:
    """Return whether gloo can sum tensors of `dtype` in the installed torch, by a test with one rank."""
    gloo: Any = c10d.ProcessGroupGloo(c10d.HashStore(), 0, 1, timedelta(seconds=30))
    with suppress(RuntimeError):
        gloo.allreduce(
            [torch.ones(1, dtype=dtype, device="cpu")], c10d.AllreduceOptions()
        ).wait()
        return True
    return False
