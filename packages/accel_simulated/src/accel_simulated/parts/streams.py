"""Streams and events: subclasses of `torch.Stream` and `torch.Event` with the vendors' methods."""

from __future__ import annotations

from typing import Any

import torch

from accel_simulated import device as simulated
from accel_simulated.parts.devices import _get_device_index
from accel_simulated.parts.lifecycle import started_accelerator

__all__ = [
    "Event", "Stream", "StreamContext", "_sleep", "current_stream", "default_stream", "set_stream", "stream",
]  # fmt: skip


class Stream(torch.Stream):
    """A stream: a queue of work that a device runs in order, with the vendor's methods."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        if "stream_id" in kwargs:  # the stream already exists
            return super().__new__(cls, **kwargs)
        index = _get_device_index(device, optional=True)
        return super().__new__(
            cls, device=torch.device(simulated.vendor.name, index), priority=priority
        )

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def wait_stream(self, stream: Any) -> None:
        self.wait_event(stream.record_event())

    def record_event(self, event: Any = None) -> Any:
        if event is None:
            event = Event()
        event.record(self)
        return event

    def query(self) -> bool:
        return bool(super().query())

    def synchronize(self) -> None:
        super().synchronize()

    def __eq__(self, o: object) -> bool:
        return isinstance(o, torch.Stream) and super().__eq__(o)

    def __hash__(self) -> int:
        return hash((self.stream_id, self.device_index))


class Event(torch.Event):
    """An event that marks a point in a stream's queue of work, with the vendor's methods."""

    _timing_event: torch.Event

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> Any:
        self = super().__new__(
            cls, device=simulated.vendor.name, enable_timing=enable_timing
        )
        # torch measures time only between instances of `torch.Event` itself, not of a subclass.
        self._timing_event = torch.Event(
            device=simulated.vendor.name, enable_timing=enable_timing
        )
        return self

    def record(self, stream: Any = None) -> None:
        if stream is None:
            stream = current_stream()
        super().record(stream)
        self._timing_event.record(stream)

    def wait(self, stream: Any = None) -> None:
        if stream is None:
            stream = current_stream()
        super().wait(stream)

    def query(self) -> bool:
        return bool(super().query())

    def elapsed_time(self, end_event: Any) -> float:
        return float(self._timing_event.elapsed_time(end_event._timing_event))

    def synchronize(self) -> None:
        super().synchronize()
        self._timing_event.synchronize()


class StreamContext:
    """A context manager that makes `stream` the current stream, or does nothing if `stream` is `None`."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        #: The streams to restore: the current streams of the current device and of the stream's device.
        self.previous: Any = None
        self.previous_on_device: Any = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self.previous = current_stream()
            self.previous_on_device = current_stream(self.stream.device)
            started_accelerator().set_stream(self.stream)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        if self.stream is not None:
            # The order matters, because setting a stream also selects the stream's device.
            started_accelerator().set_stream(self.previous_on_device)
            started_accelerator().set_stream(self.previous)


def stream(stream: Any) -> StreamContext:
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    if stream is not None:
        started_accelerator().set_stream(stream)


def current_stream(device: Any = None) -> Stream:
    index = _get_device_index(device, optional=True)
    return _as_vendor_stream(started_accelerator().current_stream(index))


def default_stream(device: Any = None) -> Stream:
    default_stream_id = 0
    current = current_stream(device)
    default: Stream = Stream(
        stream_id=default_stream_id,
        device_index=current.device_index,
        device_type=current.device_type,
    )
    return default


def _as_vendor_stream(stream: torch.Stream) -> Stream:
    """Convert a `torch.Stream` to an instance of the vendor's `Stream` class."""
    wrapped: Stream = Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    return wrapped


def _sleep(cycles: int) -> None:
    simulated.sleep_cycles(cycles)
