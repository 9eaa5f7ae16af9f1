"""Sections of the interface: streams and events, with stand-ins for devices that have none; graphs."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

from accel_core._support.torch_import import import_torch
from accel_core.accelerators._devices import Base, Devices

if TYPE_CHECKING:
    import torch
    from torch.types import Device

    from accel_core.accelerators.records import Graph

__all__ = ["Graphs", "HostEvent", "HostStream", "Streams", "torch_stream_class"]


class HostEvent:
    """A moment on the host's clock, with the calling convention of `torch.cuda.Event`.

    Recording first waits for the device, so the time between two events covers the work between them.
    """

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> None:
        self._enable_timing = enable_timing
        self._recorded_ns: int | None = None

    def _wait(self) -> None:
        """Wait for the device; an accelerator whose device runs behind puts its `synchronize` here."""

    def record(self, stream: object = None) -> None:
        """Mark this moment, at which all earlier work has finished."""
        self._wait()
        self._recorded_ns = time.perf_counter_ns()

    def elapsed_time(self, end_event: HostEvent) -> float:
        """Milliseconds from this event to `end_event`, both recorded and made with `enable_timing=True`."""
        if not (self._enable_timing and end_event._enable_timing):
            raise RuntimeError("elapsed_time needs both events made with enable_timing=True")
        if self._recorded_ns is None or end_event._recorded_ns is None:
            raise RuntimeError("elapsed_time needs both events recorded")
        return (end_event._recorded_ns - self._recorded_ns) / 1e6

    def query(self) -> bool:
        """True: work before the event had finished when it was recorded."""
        return True

    def synchronize(self) -> None:
        """Return at once, for the same reason."""

    def wait(self, stream: object = None) -> None:
        """Return at once, for the same reason."""


class HostStream:
    """The only queue of a device without user streams: order holds by itself, so nothing has to wait."""

    #: What is copied beside it is not beside it: who would overlap work can tell.
    one_queue: ClassVar[bool] = True
    _event: ClassVar[type[HostEvent]] = HostEvent

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        self.priority = priority

    def _wait(self) -> None:
        """Wait for the device, as in `HostEvent`."""

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
        self._wait()

    def query(self) -> bool:
        """Wait for the device, then True: all work has finished."""
        self._wait()
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Streams(Devices):
    """Streams and events.

    To type checkers they are `torch.Stream` and `torch.Event`, as every vendor's are. Stand-ins have the same
    methods, and are of torch's classes where torch has a stream of the device.
    """

    @cached_property
    def Event(self) -> type[torch.Event]:
        """The vendor's event class, called as `Event(enable_timing=True)`.

        Where the vendor has none: a class that waits for the device and reads the host's clock.
        """
        made: Any = type("Event", (HostEvent,), {"_wait": lambda _: self.synchronize()})
        return cast("type[torch.Event]", made)

    @cached_property
    def Stream(self) -> type[torch.Stream]:
        """The vendor's stream class, called as `Stream()` or `Stream(device=..., priority=...)`.

        Where the device has no user streams: a class with the same methods, all of one queue.
        """
        made: Any = type(
            "Stream",
            (HostStream,),
            {
                "_wait": lambda _: self.synchronize(),
                "_event": self.Event,
                # Every one is the current one, so that who asks whether his is finds that it is.
                "__eq__": lambda this, other: type(this) is type(other),
                "__hash__": lambda this: hash(type(this)),
            },
        )
        return cast("type[torch.Stream]", made)

    @cached_property
    def _only_stream(self) -> torch.Stream:
        return self.Stream()

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """A context manager that makes `stream` the current one; `None` changes nothing."""
        context: Any = stream if hasattr(stream, "__enter__") else nullcontext()
        return cast("AbstractContextManager[Any]", context)

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream` the current one of its device for this thread, until another is set.

        The default does nothing: in one queue every stream is the current one. Prefer `stream`, which
        restores the one before.
        """

    def current_stream(self, device_index: Device = None) -> torch.Stream:
        """The stream that work of this thread goes to on that device."""
        self._index_or_none(device_index)
        return self._only_stream

    def default_stream(self, device_index: Device = None) -> torch.Stream:
        """The device's default stream; the current one where the vendor names no default (xpu)."""
        return self.current_stream(device_index)


class Graphs(Base):
    """Graphs: work captured once and replayed. The default is a device without them."""

    def supports_graphs(self) -> bool:
        """Whether `create_graph` gives a graph."""
        return False

    #: Whether it was said that this device has no graphs.
    _said_no_graphs = False

    def create_graph(self) -> Graph | None:
        """A new graph, or `None` where graphs are not supported.

        What is captured into `None` runs once and is never replayed, so the first `None` is a `UserWarning`.
        """
        if not self._said_no_graphs:
            self._said_no_graphs = True
            import warnings

            warnings.warn(
                f"{self.name}: graphs are not supported, so create_graph() returns None: "
                "capture_to_graph(None) runs its work once, and replay_graph(None) runs nothing. Call "
                "supports_graphs() first; without graphs, do the work itself each time",
                UserWarning,
                stacklevel=2,
            )
        return None

    def capture_to_graph(
        self, graph: Graph | None, pool: Any = None, stream: torch.Stream | None = None
    ) -> AbstractContextManager[Any]:
        """A context manager that captures work into `graph`; with `None` the work simply runs.

        `pool` is another graph's memory pool to share, `stream` the stream to capture on.
        """
        return nullcontext()

    def replay_graph(self, graph: Graph | None) -> None:
        """Run what `graph` captured; nothing for `None`."""
        if graph is not None:
            graph.replay()

    def is_current_stream_capturing(self) -> bool:
        """Whether the current stream is capturing into a graph."""
        return False


@cache  # registered only as long as somebody holds it
def _record_nothing(device_type: str) -> Any:
    """Register a kernel of `record_stream` that does nothing, once for a device type."""
    torch: Any = import_torch()
    library = torch.library.Library("aten", "IMPL")
    key = torch._C._dispatch_key_for_device(device_type)
    library.impl("record_stream", lambda *_: None, key)
    return library


def torch_stream_class(one_queue: type, torch: Any, device_type: str) -> type:
    """`one_queue` as a class of torch's streams, which `Tensor.record_stream` takes; else as it is.

    Where the device has no kernel of `record_stream`, one that does nothing is registered: of one queue, no
    memory can be given away too early.
    """
    kind = torch.Stream
    try:
        now = torch.accelerator.current_stream()
        numbers = {name: getattr(now, name) for name in ("stream_id", "device_index", "device_type")}
        made = type(
            "Stream",
            (one_queue, kind),
            {"__new__": lambda cls, *_, **__: kind.__new__(cls, **numbers)},
        )
        stream = made()
    except (RuntimeError, TypeError, AttributeError):  # this torch knows no stream of the device
        return one_queue
    try:
        tensor = torch.empty(1, device=device_type)
    except RuntimeError:  # a device that holds no tensors yet has none to record
        return made
    try:
        tensor.record_stream(stream)
    except RuntimeError:  # as NotImplementedError, or what a fallback to the CPU says
        _record_nothing(device_type)
    return made
