"""Reductions over gloo for every data type; types that gloo lacks are converted to one that it has.

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

__all__ = ["Reduction", "put_bytes", "reduction"]

_Op = c10d.ReduceOp
#: What gloo has had from the start.
_PLAIN = frozenset(
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
_COMPLEX = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
#: The type in which the rest is reduced. Sums and products of integers are the same in more bits, once cut.
_WIDER = {
    torch.int16: torch.int32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.bfloat16: torch.float32,
}
_ON_BITS = ("BAND", "BOR", "BXOR")
_OF_BOOL = {
    "SUM": "MAX", "MAX": "MAX", "BOR": "MAX", "PRODUCT": "MIN", "MIN": "MIN", "BAND": "MIN", "BXOR": "BXOR",
}  # fmt: skip


class Reduction(NamedTuple):
    """How to reduce tensors of one type: the steps before and after gloo."""

    #: gloo's operation, an element of `ReduceOp.RedOpType`.
    op: Any
    #: From the contiguous host tensor to the one that gloo gets, perhaps the same memory.
    send: Callable[[Tensor], Tensor]
    #: Writes what gloo made into the host tensor; `None` where gloo worked in its memory.
    receive: Callable[[Tensor, Tensor], None] | None
    #: The last step, in the host tensor's own type.
    finish: Callable[[Tensor], object] | None = None

    def end(self, host: Tensor, made: Tensor, *, beside: bool = False) -> None:
        """Write the reduced values `made` into `host`; `beside`: gloo worked in other memory than `host`."""
        receive = self.receive or (put_bytes if beside else None)
        if receive is not None:
            receive(host, made)
        if self.finish is not None:
            self.finish(host)


def reduction(dtype: torch.dtype, op: Any, size: int) -> Reduction:
    """Return the steps by which `size` ranks reduce tensors of `dtype` with `op`.

    Raises `ValueError` for an operation that the type does not support, with torch's message if torch has
    one.
    """
    kind = getattr(op, "op", op)
    name = kind.name
    if name == "PREMUL_SUM":
        factor = op.__getstate__()[1]
        plain = reduction(dtype, _Op.SUM, size)
        return plain._replace(
            send=lambda host: plain.send(host.mul(_on_host(factor))),
            receive=plain.receive or put_bytes,
        )
    if name == "AVG":
        _require(dtype is not torch.bool, name, dtype)
        rounding = None if dtype.is_floating_point or dtype.is_complex else "trunc"
        summed = reduction(dtype, _Op.SUM, size)
        return summed._replace(finish=lambda host: _divide(host, size, rounding))
    _require(
        not (name in _ON_BITS and (dtype.is_floating_point or dtype.is_complex)),
        name,
        dtype,
    )
    if dtype is torch.bool:
        return Reduction(
            getattr(_Op, _OF_BOOL[name]), lambda host: host.view(torch.uint8), None
        )
    if dtype in _COMPLEX:
        _require(name == "SUM", name, dtype)
        return Reduction(_Op.SUM, lambda host: torch.view_as_real(host).view(-1), None)
    if dtype in _PLAIN or (dtype is torch.bfloat16 and _gloo_has(dtype)):
        return Reduction(getattr(_Op, name), lambda host: host, None)
    if dtype is torch.uint64:
        return _of_uint64(name)
    wider = _WIDER.get(dtype, torch.float32 if dtype.is_floating_point else None)
    if wider is None:
        raise ValueError(f"tensors of {dtype} cannot be reduced")
    return Reduction(getattr(_Op, name), lambda host: host.to(wider), _cut)


def _require(holds: bool, name: str, dtype: torch.dtype) -> None:
    if not holds:
        raise ValueError(f"ReduceOp.{name} is not defined for {dtype}")


def _on_host(factor: Any) -> Any:
    return factor.cpu() if isinstance(factor, Tensor) else factor


def _divide(host: Tensor, size: int, rounding: str | None) -> None:
    if host.is_complex():  # a division by a complex number rounds otherwise
        torch.view_as_real(host).div_(size)
    elif (
        host.element_size() == 1 and host.is_floating_point()
    ):  # torch divides no 8-bit floats
        host.copy_(host.to(torch.float32).div_(size))
    elif host.dtype is torch.uint64:
        bits = host.view(torch.int64)
        # Half of it fits a signed number; what that division leaves out is less than twice the size.
        half = (bits >> 1) & torch.iinfo(torch.int64).max
        quotient = half.div_(size, rounding_mode="trunc") << 1
        bits.copy_(quotient + (bits - quotient * size >= size))
    elif host.dtype in (torch.uint16, torch.uint32):
        host.copy_(host.to(torch.int64).div_(size, rounding_mode="trunc"))
    else:
        host.div_(size, rounding_mode=rounding)


def put_bytes(host: Tensor, made: Tensor) -> None:
    """Copy the bytes of `made`, a result in the data type of `host`, to `host`."""
    bytes_of(host).copy_(bytes_of(made))


def _cut(host: Tensor, made: Tensor) -> None:
    """Bring the result back into the narrow type, integers modulo its range."""
    if host.dtype.is_floating_point:
        host.copy_(made)
        return
    # By its low bytes: casts of what is out of range are undefined in C++, and differ between machines.
    parts = bytes_of(made).view(-1, made.element_size())
    if sys.byteorder == "little":
        low = slice(0, host.element_size())
    else:
        low = slice(-host.element_size(), None)
    bytes_of(host).view(-1, host.element_size()).copy_(parts[:, low])


def _of_uint64(name: str) -> Reduction:
    """As int64, which has the same bits; where order counts, turned so that the order is the same."""
    op = getattr(_Op, name)
    if name not in ("MIN", "MAX"):
        return Reduction(op, lambda host: host.view(torch.int64), None)
    turn = torch.iinfo(torch.int64).min

    def receive(host: Tensor, made: Tensor) -> None:
        host.view(torch.int64).copy_(made.bitwise_xor_(turn))

    return Reduction(op, lambda host: host.view(torch.int64).bitwise_xor(turn), receive)


@functools.lru_cache
def _gloo_has(dtype: torch.dtype) -> bool:
    """Whether this torch's gloo sums that type: asked of a group of one."""
    alone: Any = c10d.ProcessGroupGloo(c10d.HashStore(), 0, 1, timedelta(seconds=30))
    with suppress(RuntimeError):
        alone.allreduce([torch.ones(1, dtype=dtype)], c10d.AllreduceOptions()).wait()
        return True
    return False
