"""Sections of the interface: streams and events, stand-ins for devices without;
profiler ranges.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

from accel_core.interface.devices import Base, Device, Devices

if TYPE_CHECKING:
    import torch


class HostEvent:
    """A point in time on the host's clock, with the methods of `torch.cuda.Event`.

    `record` first waits for the device, so the time between two events includes the
    work between them.
    """

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self._enable_timing = enable_timing
        self._recorded_ns: int | None = None

    def _wait(self) -> None:
        """Wait for the device; an accelerator whose device runs behind puts its
        `synchronize` here.
        """

    def record(self, stream: object = None) -> None:
        """Wait until all earlier work has finished, then store the time."""
        self._wait()
        self._recorded_ns = time.perf_counter_ns()

    def elapsed_time(self, end_event: HostEvent) -> float:
        """Return the milliseconds from this event to `end_event`; both need
        `enable_timing=True` and `record()`.
        """
        timed = self._enable_timing and end_event._enable_timing
        if not timed or self._recorded_ns is None or end_event._recorded_ns is None:
            raise RuntimeError(
                "elapsed_time needs both events made with enable_timing=True, and "
                "recorded"
            )
        return (end_event._recorded_ns - self._recorded_ns) / 1e6

    def query(self) -> bool:
        """Return True: earlier work had finished when the event was recorded."""
        return True

    def synchronize(self) -> None:
        """Return at once: earlier work had finished when the event was recorded."""

    def wait(self, stream: object = None) -> None:
        """Return at once: earlier work had finished when the event was recorded."""


class HostStream:
    """The only queue of a device without user streams; its work runs in order, so
    nothing has to wait.
    """

    #: What is copied beside it is not beside it: who would overlap work can tell.
    one_queue: ClassVar[bool] = True
    _event: ClassVar[type[HostEvent]] = HostEvent

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        self.priority = priority

    def wait_stream(self, stream: object) -> None:
        """Return at once: the other stream is the same queue."""

    def wait_event(self, event: object) -> None:
        """Return at once: the event was recorded in the same queue."""

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new one, and return it."""
        event = self._event() if event is None else event
        event.record()  # of this only queue: Metal's events take no stream
        return event

    def synchronize(self) -> None:
        """Wait until the device has finished all its work."""

    def query(self) -> bool:
        """Wait for the device, then return True: all work has finished."""
        self.synchronize()
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Streams(Devices):
    """Streams and events.

    For type checkers they are `torch.Stream` and `torch.Event`. If the vendor has none,
    stand-ins with the same methods take their place; if torch has a stream class for
    the device, they derive from it.
    """

    #: The stream and event classes of the vendor, or torch's; `None` where there is
    #: none.
    _stream_class: Any = None
    _event_class: Any = None

    @cached_property
    def Event(self) -> type[torch.Event]:
        """The vendor's event class, to be called as `Event(enable_timing=True)`.

        Without one, a class that waits for the device and uses the host's clock.
        """
        # Metal has events of its own, and no streams; torch's own are tried with its
        # streams.
        if self._event_class and (
            self._event_class is not self._torch.Event or self._has_streams
        ):
            return cast("Any", self._event_class)
        return cast(
            "Any", type("Event", (HostEvent,), {"_wait": lambda _: self.synchronize()})
        )

    @cached_property
    def Stream(self) -> type[torch.Stream]:
        """The vendor's stream class, to be called as `Stream()` or `Stream(device=...,
        priority=...)`.

        On a device without user streams, a class with the same methods whose streams
        are all one queue.
        """
        if self._has_streams:
            return cast("Any", self._stream_class)
        members = {
            "synchronize": lambda _: self.synchronize(),
            "_event": self.Event,
            # Every one is the current one, so that who asks whether his is finds that
            # it is.
            "__eq__": lambda this, other: type(this) is type(other),
            "__hash__": lambda this: hash(type(this)),
        }
        return cast("Any", self._recorded(type("Stream", (HostStream,), members)))

    @cached_property
    def _has_streams(self) -> bool:
        """Whether streams and events work; tried where torch's own classes serve, which
        promise nothing.

        Whether a device has brought its streams into torch is known by use alone.
        """
        if self._stream_class is not self._torch.Stream:
            return self._stream_class is not None
        with suppress(
            RuntimeError, TypeError
        ):  # torch's words for what a backend does not implement
            stream, event = self._stream_class(), self._torch.Event()
            event.record(stream)
            event.synchronize()
            stream.synchronize()
            self._torch.empty(1, device=self._device_type).record_stream(
                stream
            )  # else memory has no order
            return True
        return False

    def _recorded(self, one_queue: type) -> Any:
        """`one_queue` as a class of torch's streams, which `Tensor.record_stream`
        takes; else as it is.

        Where the device has no kernel of `record_stream`, one that does nothing is
        registered: of one queue, no memory can be given away too early.
        """
        kind = self._torch.Stream
        with suppress(
            RuntimeError, TypeError, AttributeError
        ):  # torch, or this one, knows no such stream
            now = self._torch_accelerator.current_stream()
            numbers = {
                name: getattr(now, name)
                for name in ("stream_id", "device_index", "device_type")
            }
            make = {"__new__": lambda cls, *_, **__: kind.__new__(cls, **numbers)}
            made: Any = type("Stream", (one_queue, kind), make)
            stream = made()
            with suppress(
                RuntimeError
            ):  # a device that holds no tensors yet has none to record
                tensor = self._torch.empty(1, device=self._device_type)
                try:
                    tensor.record_stream(stream)
                except (
                    RuntimeError
                ):  # as NotImplementedError, or what a fallback to the CPU says
                    _record_nothing(self._torch, self._device_type)
            return made
        return one_queue

    @cached_property
    def _only_stream(self) -> torch.Stream:
        return self.Stream()

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """Return a context manager that makes `stream` the current stream; `None`
        changes nothing.
        """
        return cast("Any", stream) if hasattr(stream, "__enter__") else nullcontext()

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream` this thread's current stream of its device, until another one
        is set.

        Prefer `stream`, which restores the previous one.
        """
        self.stream(stream).__enter__()  # sets it, and is not left

    def current_stream(self, device_index: Device = None) -> torch.Stream:
        """Return the stream on which this thread's work runs on that device."""
        self._index_or_none(device_index)
        return self._only_stream

    def default_stream(self, device_index: Device = None) -> torch.Stream:
        """Return the device's default stream; the current one if the vendor names no
        default (xpu).
        """
        return self.current_stream(device_index)


@cache  # registered only as long as somebody holds it
def _record_nothing(torch: Any, device_type: str) -> Any:
    """Register a kernel of `record_stream` that does nothing, once for a device type."""
    library = torch.library.Library("aten", "IMPL")
    library.impl(
        "record_stream", lambda *_: None, torch._C._dispatch_key_for_device(device_type)
    )
    return library


class Ranges(Base):
    """Named ranges in a profiler's timeline."""

    #: Whether `range_push` and `range_pop` take an NVTX domain.
    supports_nvtx_domain: bool = False
    #: The open ranges of each thread, which a profiler's timeline is made of too.
    _ranges: ClassVar = threading.local()

    def range_push(
        self, msg: str, domain: str | None = None, category: str | None = None
    ) -> None:
        """Open a named range in the profiler's timeline; never raises an error.

        The default is `torch.profiler.record_function`, which costs nothing while no
        profiler runs. `domain` and `category` are for vendors that support them.
        """
        seen = self._torch.autograd._profiler_enabled()
        entered = (
            self._torch.profiler.record_function(str(msg)) if seen else nullcontext()
        )
        entered.__enter__()
        # A range opened while no profiler ran is kept too, so that its end closes
        # nothing else.
        vars(self._ranges).setdefault("open", []).append(entered)

    def range_pop(self, domain: str | None = None) -> None:
        """Close the range that this thread opened last; do nothing if none is open;
        never raises an error.
        """
        if ranges := vars(self._ranges).get("open"):
            ranges.pop().__exit__(None, None, None)

    @contextmanager
    def range(self, msg: str) -> Iterator[None]:
        """Return a context manager that opens a named range and closes it at the end."""
        self.range_push(msg)
        try:
            yield
        finally:
            self.range_pop()
