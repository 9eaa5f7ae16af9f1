"""Copies between the device and the host, in order with the device's other work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor

from accel_train.staged.device import Device

__all__ = ["Copies", "bytes_of", "to_host"]


def to_host(tensor: Tensor) -> Tensor:
    """Return a new contiguous copy in host memory."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    return host.copy_(tensor.detach())


def bytes_of(tensor: Tensor) -> Tensor:
    """Return a contiguous host tensor as one row of bytes, in the same memory."""
    if not tensor.numel():
        return tensor.new_empty(0, dtype=torch.uint8)
    # A single element counts as contiguous whatever its stride is, and then has no view
    # as bytes.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


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
