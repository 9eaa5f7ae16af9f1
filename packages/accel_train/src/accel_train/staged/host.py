"""Order copies between device and host with the device's other work, and reuse host memory for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from accel_train.staged.device import Device

__all__ = ["Copies", "HostMemory", "bytes_of"]

#: Most bytes of host memory that are kept between collectives.
_MAX_REUSED_BYTES = 1 << 28
#: Each host tensor starts at a multiple of this: views of a type must begin at a multiple of its size.
_ALIGNMENT = 64


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
        self._used_bytes = 0

    def empty_like(self, tensor: Tensor) -> Tensor:
        """Return a contiguous tensor of the same shape and type, with any values."""
        size = tensor.numel() * tensor.element_size()
        start = self._used_bytes
        blocks = math.ceil(size / _ALIGNMENT)
        self._used_bytes += blocks * _ALIGNMENT
        if self._used_bytes > self._buffer.numel():
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        part = self._buffer[start : start + size]
        return part.view(tensor.dtype).view(tensor.shape)

    def copy_of(self, tensor: Tensor) -> Tensor:
        """Return a contiguous copy."""
        return self.empty_like(tensor).copy_(tensor.detach())

    def reuse(self) -> None:
        """Reuse all memory for the next collective, as the previous one has ended.

        The memory grows to what the previous one needed, up to `_MAX_REUSED_BYTES`.
        """
        if self._buffer.numel() < self._used_bytes <= _MAX_REUSED_BYTES:
            self._buffer = torch.empty(
                self._used_bytes, dtype=torch.uint8, device="cpu"
            )
        self._used_bytes = 0

    def forget(self) -> None:
        """Give the memory up after a collective failed, because gloo may still use it."""
        self._buffer = torch.empty(0, dtype=torch.uint8)


class Copies:
    """Orders the copies of a group's thread with respect to the device's other work."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._type = device.device_name()
        self._streams: dict[int, Any] = {}

    def device_index(self, tensors: Iterable[Tensor]) -> int | None:
        """Return the index of the tensors' device; `None` if all are on the host."""
        for tensor in tensors:
            if tensor.device.type == self._type:
                return tensor.device.index or 0
        return None

    def record_event(self, index: int | None) -> Any:
        """Return an event in the calling thread's stream, for `on_side_stream` to wait for.

        `None` if there is nothing to wait for: `index` is `None`, for the host, or the
        device has a single queue.
        """
        # Classes written for DeepSpeed have no Stream for a device with a single queue.
        stream = self._device.Stream
        if index is None or stream is None or getattr(stream, "one_queue", False):
            return None
        with self._device.device_guard(index):
            event = self._device.Event()
            event.record(self._device.current_stream(index))
        return event

    @contextmanager
    def on_side_stream(self, index: int | None, event: Any) -> Iterator[None]:
        """Run the block's copies after `event`, in a stream of their own.

        They run in parallel to the program's work, and have finished at the end of the
        block. `index`: of the device; `None` for the host. `event`: of `record_event`.
        """
        if index is None:
            yield
            return
        with self._device.device_guard(index):
            if event is None:
                yield
                return
            # Wait on the host, not in the stream: outputs that are not copied from must
            # be free too.
            event.synchronize()
            stream = self._streams.get(index)
            if stream is None:
                stream = self._streams[index] = self._device.Stream()
            with self._device.stream(stream):
                yield
            stream.synchronize()

    def on_current_stream(self, index: int | None) -> AbstractContextManager[Any]:
        """Run the block's copies in the calling thread's stream, in order with it.

        `index`: of the device; `None` for the host.
        """
        return self._device.device_guard(index)
