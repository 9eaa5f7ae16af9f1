"""Copy tensors between device and host, in order with the device's other work, using reusable host memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from accel_train.staged.device import Device

__all__ = ["Copies", "HostMemory", "bytes_of"]

#: The maximum number of bytes of host memory that are kept between collectives.
_MAX_REUSED_BYTES = 1 << 28
#: Each host tensor starts at a multiple of this number of bytes, because a view of a data type must start at
#: a multiple of the type's size.
_ALIGNMENT = 64


def bytes_of(tensor: Tensor) -> Tensor:
    """Return the bytes of a contiguous host tensor as a one-dimensional uint8 view."""
    if not tensor.numel():
        return tensor.new_empty(0, dtype=torch.uint8)
    # A tensor of one element is contiguous with any stride, but with some strides, torch
    # cannot view it as bytes.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


class HostMemory:
    """Host memory for the tensors of one collective at a time. The next collective reuses the memory.

    New memory causes a page fault for every 4 KiB, which doubles the time that a large collective takes.
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(0, dtype=torch.uint8, device="cpu")
        self._used_bytes = 0

    def empty_like(self, tensor: Tensor) -> Tensor:
        """Return an uninitialized, contiguous host tensor with the shape and data type of `tensor`."""
        size = tensor.numel() * tensor.element_size()
        start = self._used_bytes
        aligned_size = math.ceil(size / _ALIGNMENT) * _ALIGNMENT
        self._used_bytes += aligned_size
        if self._used_bytes > self._buffer.numel():
            # The buffer is too small. It grows before the next collective.
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        part = self._buffer[start : start + size]
        return part.view(tensor.dtype).view(tensor.shape)

    def copy_of(self, tensor: Tensor) -> Tensor:
        """Return a contiguous copy of `tensor` in host memory."""
        return self.empty_like(tensor).copy_(tensor.detach())

    def start_reuse(self) -> None:
        """Make all memory available to the next collective. The previous collective must have ended.

        The memory grows to the size that the previous collective needed, up to 256 MiB.
        """
        was_too_small = self._used_bytes > self._buffer.numel()
        if was_too_small and self._used_bytes <= _MAX_REUSED_BYTES:
            self._buffer = torch.empty(
                self._used_bytes, dtype=torch.uint8, device="cpu"
            )
        self._used_bytes = 0

    def discard(self) -> None:
        """Stop using the memory after a collective has failed, because gloo may still write to it."""
        self._buffer = torch.empty(0, dtype=torch.uint8, device="cpu")


class Copies:
    """Copies between device and host that run in order with the device's other work."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._device_type = device.device_name()
        self._streams: dict[int, Any] = {}

    def device_index(self, tensors: Iterable[Tensor]) -> int | None:
        """Return the index of the tensors' device, or `None` if all tensors are on the host."""
        for tensor in tensors:
            if tensor.device.type == self._device_type:
                return tensor.device.index or 0
        return None

    def record_event(self, index: int | None) -> Any:
        """Record an event in the calling thread's stream, and return the event for `on_side_stream`.

        `index` is the device's index; `None` means the host. Returns `None` if no event is needed: on the
        host, or on a device with a single queue.
        """
        # DeepSpeed's classes have no Stream for a device with a single queue.
        stream = self._device.Stream
        if index is None or stream is None or getattr(stream, "one_queue", False):
            return None
        with self._device.device_guard(index):
            event = self._device.Event()
            event.record(self._device.current_stream(index))
        return event

    @contextmanager
    def on_side_stream(self, index: int | None, event: Any) -> Iterator[None]:
        """Return a context manager that runs the copies in its block in a separate stream, after `event`.

        `event` is the result of `record_event`. The copies run in parallel with the program's work, and have
        finished at the end of the block. `index` is the device's index; `None` means the host.
        """
        if index is None:  # All tensors are in host memory.
            yield
            return
        with self._device.device_guard(index):
            if event is None:  # The device has a single queue, which keeps the order.
                yield
                return
            # Wait on the host, not in the stream: earlier work on the outputs must have
            # ended too before gloo's result is copied to them.
            event.synchronize()
            if index not in self._streams:
                self._streams[index] = self._device.Stream()
            stream = self._streams[index]
            with self._device.stream(stream):
                yield
            stream.synchronize()

    def on_current_stream(self, index: int | None) -> AbstractContextManager[Any]:
        """Return a context manager that runs the copies in its block in the calling thread's stream.

        The copies run in order with the stream's other work. `index` is the device's index; `None` means the
        host.
        """
        return self._device.device_guard(index)
