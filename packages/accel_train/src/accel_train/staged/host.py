"""Copies between the device and the host, in order with the device's other work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from accel_train.staged.device import Device

__all__ = ["Copies", "HostMemory", "bytes_of"]

#: Bytes of memory that is kept between collectives, at most.
_KEPT = 1 << 28
#: A view of a type must begin at a multiple of its size.
_ALIGNED = 64


def bytes_of(tensor: Tensor) -> Tensor:
    """Return a contiguous host tensor as one row of bytes, in the same memory."""
    if not tensor.numel():
        return tensor.new_empty(0, dtype=torch.uint8)
    # A single element counts as contiguous whatever its stride is, and then has no view
    # as bytes.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


class HostMemory:
    """Host tensors of one collective at a time, in memory that the next one uses again.

    New memory costs a page fault for every 4 KiB, which doubles the time of a large
    collective.
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def empty_like(self, tensor: Tensor) -> Tensor:
        """Return a contiguous tensor of the same shape and type, with any values."""
        size = tensor.numel() * tensor.element_size()
        start, self._used = self._used, self._used + -(-size // _ALIGNED) * _ALIGNED
        if self._used > self._buffer.numel():
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        part = self._buffer[start : start + size]
        return part.view(tensor.dtype).view(tensor.shape)

    def copy_of(self, tensor: Tensor) -> Tensor:
        """Return a contiguous copy."""
        return self.empty_like(tensor).copy_(tensor.detach())

    def reuse(self) -> None:
        """Begin a collective; that before it has ended and uses its memory no more."""
        if self._buffer.numel() < self._used <= _KEPT:
            self._buffer = torch.empty(self._used, dtype=torch.uint8, device="cpu")
        self._used = 0

    def forget(self) -> None:
        """Leave the memory to a collective that failed, which may still use it."""
        self._buffer = torch.empty(0, dtype=torch.uint8)


class Copies:
    """Orders the copies of a group's thread with respect to the device's other work."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._type = device.device_name()
        self._streams: dict[int, Any] = {}

    def index(self, tensors: Iterable[Tensor]) -> int | None:
        """Return the index of the tensors' device; `None` if all are on the host."""
        for tensor in tensors:
            if tensor.device.type == self._type:
                return tensor.device.index or 0
        return None

    def mark(self, index: int | None) -> Any:
        """Return an event in the calling thread's stream, for `beside` to wait for.

        `None` if there is nothing to wait for: on the host, or where the device has a
        single queue.
        """
        # None in classes written for DeepSpeed, on a device with a single queue.
        stream = self._device.Stream
        if index is None or stream is None or getattr(stream, "one_queue", False):
            return None
        with self._device.device_guard(index):
            event = self._device.Event()
            event.record(self._device.current_stream(index))
        return event

    @contextmanager
    def beside(self, index: int | None, mark: Any) -> Iterator[None]:
        """Make copies start after `mark`, in a stream of their own.

        They run in parallel to the program's work, and have finished at the end of the
        block.
        """
        if index is None:
            yield
            return
        with self._device.device_guard(index):
            if mark is None:
                yield
                return
            # On the host, not in the stream: outputs that nothing was copied from must
            # be free as well.
            mark.synchronize()
            stream = self._streams.get(index)
            if stream is None:
                stream = self._streams[index] = self._device.Stream()
            with self._device.stream(stream):
                yield
            stream.synchronize()

    def here(self, index: int | None) -> AbstractContextManager[Any]:
        """Make copies in the calling thread's current stream, which orders them."""
        return self._device.device_guard(index)
