"""Streams and events: subclasses of `torch.Stream` and `torch.Event` with the vendors' methods."""

from __future__ import annotations

from typing import Any

import torch

from accel_simulated import device as simulated
from accel_simulated.parts.devices import _get_device_index
from accel_simulated.parts.lifecycle import running

__all__ = [
    "Event", "Stream", "StreamContext", "_sleep", "current_stream", "default_stream", "set_stream", "stream",
]  # fmt: skip


class Stream(torch.Stream):
    """A queue of work for one device."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        if "stream_id" in kwargs:
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
        event = Event() if event is None else event
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
    """A marker in a stream's queue of work."""

    _plain: torch.Event

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> Any:
        self = super().__new__(
            cls, device=simulated.vendor.name, enable_timing=enable_timing
        )
        # torch measures the time between plain `torch.Event`s only, so each event contains one.
        self._plain = torch.Event(
            device=simulated.vendor.name, enable_timing=enable_timing
        )
        return self

    def record(self, stream: Any = None) -> None:
        stream = current_stream() if stream is None else stream
        super().record(stream)
        self._plain.record(stream)

    def wait(self, stream: Any = None) -> None:
        super().wait(current_stream() if stream is None else stream)

    def query(self) -> bool:
        return bool(super().query())

    def elapsed_time(self, end_event: Any) -> float:
        return float(self._plain.elapsed_time(end_event._plain))

    def synchronize(self) -> None:
        super().synchronize()
        self._plain.synchronize()


class StreamContext:
    """Context manager that makes a stream the current stream; `None` changes nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        #: The streams to restore: the current stream of the current device and of the stream's device.
        self.previous: Any = None
        self.previous_on_device: Any = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self.previous = current_stream()
            self.previous_on_device = current_stream(self.stream.device)
            running().set_stream(self.stream)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        if self.stream is not None:
            running().set_stream(self.previous_on_device)
            running().set_stream(self.previous)


def stream(stream: Any) -> StreamContext:
    return StreamContext(stream)


def set_stream(stream: Any) -> None:
    if stream is not None:
        running().set_stream(stream)


def current_stream(device: Any = None) -> Stream:
    return _wrap(running().current_stream(_get_device_index(device, optional=True)))


def default_stream(device: Any = None) -> Stream:
    current = running().current_stream(_get_device_index(device, optional=True))
    default: Stream = Stream(
        stream_id=0, device_index=current.device_index, device_type=current.device_type
    )
    return default


def _wrap(stream: torch.Stream) -> Stream:
    """Return the stream as an instance of this module's class `Stream`."""
    wrapped: Stream = Stream(
        stream_id=stream.stream_id,
        device_index=stream.device_index,
        device_type=stream.device_type,
    )
    return wrapped


def _sleep(cycles: int) -> None:
    simulated.sleep(max(1, cycles // 1_000_000))
