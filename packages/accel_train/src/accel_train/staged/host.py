"""Host memory for staging: reusable buffers, page-locked if the device supports it; streams for copies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from accel_train.staged.device import Device

__all__ = ["Buffers", "Queue", "bytes_of"]

#: Bytes of unused buffers that are kept: new memory costs a page fault for every 4 KiB.
_KEPT = 1 << 28
_SMALLEST = 1 << 12


def bytes_of(tensor: Tensor) -> Tensor:
    """Return a contiguous host tensor as one row of bytes, in the same memory."""
    if not tensor.numel():
        return tensor.new_empty(0, dtype=torch.uint8)
    # A single element counts as contiguous whatever its stride is, and then has no view as bytes.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


class Buffers:
    """Reusable flat buffers of bytes; the size of each is a power of two."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: dict[int, list[Tensor]] = {}
        self._kept = 0
        self._lock = threading.Lock()
        self._page_locks = True

    def take(self, size: int) -> Tensor:
        """Return a buffer of at least `size` bytes with undefined content."""
        whole = max(_SMALLEST, 1 << max(0, size - 1).bit_length())
        with self._lock:
            if free := self._free.get(whole):
                self._kept -= whole
                return free.pop()
        return self._new(whole)

    def give(self, buffer: Tensor) -> None:
        """Take back a buffer that is no longer read or written."""
        size = buffer.numel()
        with self._lock:
            if self._kept + size <= _KEPT:
                self._kept += size
                self._free.setdefault(size, []).append(buffer)

    def clear(self) -> None:
        """Free all kept buffers."""
        with self._lock:
            self._free.clear()
            self._kept = 0

    def _new(self, size: int) -> Tensor:
        if self._page_locks:
            try:
                locked = self._device.pin_empty(size, dtype=torch.uint8)
                if locked.is_cpu:  # DeepSpeed's class for Metal gives a tensor of Metal's, as torch does
                    return locked
            except (
                Exception
            ):  # whatever the vendor says: there is none, and pageable memory serves
                pass
            self._page_locks = False
        return torch.empty(size, dtype=torch.uint8, device="cpu")


class Queue:
    """Orders a group's copies with respect to the device's other work."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._type = device.device_name()
        #: By device and thread: what comes in and what goes out pass each other.
        self._streams: dict[tuple[int, int], Any] = {}

    def index(self, tensors: list[Tensor]) -> int | None:
        """Return the index of the device that these tensors are on; `None` if all are on the host."""
        return next(
            (t.device.index or 0 for t in tensors if t.device.type == self._type), None
        )

    def mark(self, index: int | None) -> Any:
        """Return an event in this thread's stream for `side` to wait for; `None` if none is needed."""
        stream = (
            self._device.Stream
        )  # None in classes written for DeepSpeed, on a device with one queue
        if index is None or stream is None or getattr(stream, "one_queue", False):
            return None
        with self._device.device_guard(index):
            event = self._device.Event()
            event.record(self._device.current_stream(index))
        return event

    def here(self, index: int | None) -> AbstractContextManager[Any]:
        """Return a context manager for copies in the calling thread, on its current stream.

        That stream already orders the copies after the work that wrote the tensors. `index` is the device's
        index.
        """
        return self._device.device_guard(index)

    @contextmanager
    def side(self, index: int | None, mark: Any) -> Iterator[None]:
        """Return a context manager for copies in one of our threads, which have finished when it ends.

        They start after `mark` and run in a stream of their own, in parallel to the caller's work.
        """
        if index is None:
            yield
            return
        with ExitStack() as stack:
            stack.enter_context(self._device.device_guard(index))
            if mark is None:
                yield
                return
            # On the host, not in the stream: outputs that nothing was copied from must be free as well.
            mark.synchronize()
            key = index, threading.get_ident()
            if key not in self._streams:
                self._streams[key] = self._device.Stream()
            stack.enter_context(self._device.stream(self._streams[key]))
            yield
            self._streams[key].synchronize()
