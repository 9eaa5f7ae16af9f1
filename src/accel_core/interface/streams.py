"""Sections of the interface: streams and events, their replacements for devices without
them, and profiler ranges.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, cast

from accel_core.interface.devices import Base, Device, Devices, parameters
from accel_core.interface.signatures import set_name_in_errors

if TYPE_CHECKING:
    import torch


#: The keywords of `torch.cuda.Event` (2.13).
_EVENT_KEYWORDS = {"enable_timing", "blocking", "interprocess", "external"}


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
        external: bool = False,
    ) -> None:
        self._enable_timing = enable_timing
        self._recorded_ns: int | None = None

    def _wait(self) -> None:
        """Wait for the device. An accelerator with asynchronous calls replaces this
        method with its `synchronize`.
        """

    def record(self, stream: object = None) -> None:
        """Wait until all earlier work on the device has finished, then record the time."""
        self._wait()
        self._recorded_ns = time.perf_counter_ns()

    def elapsed_time(self, end_event: HostEvent) -> float:
        """Return the time in milliseconds from this event to `end_event`.

        Raises `RuntimeError` unless both events were created with `enable_timing=True`
        and recorded.
        """
        are_timed = self._enable_timing and end_event._enable_timing
        start_ns, end_ns = self._recorded_ns, end_event._recorded_ns
        if not are_timed or start_ns is None or end_ns is None:
            raise RuntimeError(
                "elapsed_time needs two recorded events that were created with enable_timing=True"
            )
        return (end_ns - start_ns) / 1e6

    def query(self) -> bool:
        """Return True: earlier work had finished when the event was recorded."""
        return True

    def synchronize(self) -> None:
        """Return at once: earlier work had finished when the event was recorded."""

    def wait(self, stream: object = None) -> None:
        """Return at once: earlier work had finished when the event was recorded."""


class HostStream:
    """The only queue of a device without user streams.

    Its work runs in the order of the calls, so the methods that wait for another stream
    return at once.
    """

    #: True, because copies do not overlap computation.
    one_queue: ClassVar[bool] = True
    _event_class: ClassVar[type[HostEvent]] = HostEvent

    def __init__(self, device: object = None, priority: int = 0, **_: object) -> None:
        self.priority = priority

    def wait_stream(self, stream: object) -> None:
        """Return at once, because `stream` is the same queue as this stream."""

    def wait_event(self, event: object) -> None:
        """Return at once, because the event was recorded in the same queue."""

    def record_event(self, event: Any = None) -> Any:
        """Record `event`, or a new event, and return it."""
        if event is None:
            event = self._event_class()
        event.record()  # No stream is passed, because Metal's events take none.
        return event

    def synchronize(self) -> None:
        """Wait until the device has finished all its work."""

    def query(self) -> bool:
        """Wait for the device, then return True, because all work has finished."""
        self.synchronize()
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Streams(Devices):
    """The members for streams and events.

    For type checkers, the classes are `torch.Stream` and `torch.Event`. If the vendor
    has neither, classes with the same methods replace them. If torch has a stream class
    for the device, the replacement derives from it.
    """

    #: The stream and event classes of the vendor or of torch, or `None` if there is
    #: none.
    _stream_class: Any = None
    _event_class: Any = None

    @cached_property
    def Event(self) -> type[torch.Event]:
        """The vendor's event class. Call it as `Event(enable_timing=True)`.

        If that class lacks keywords of `torch.cuda.Event`, this is a subclass that
        accepts all of them. The subclass ignores `blocking`, and ignores `external` if
        the vendor captures no graphs. Any other missing keyword raises
        `UnsupportedError`. If the vendor has no event class, this is a class that waits
        for the device and uses the host's clock.
        """
        # torch's event class works only if torch's streams do. A vendor's event class
        # needs no stream class: Metal has only an event class.
        is_from_torch = self._event_class is self._torch.Event
        if self._event_class and (self._has_streams or not is_from_torch):
            return cast("Any", self._event_with_torch_keywords(self._event_class))
        members = {"_wait": lambda _: self.synchronize()}
        return cast("Any", type("Event", (HostEvent,), members))

    def _event_with_torch_keywords(self, event_class: Any) -> Any:
        """Return `event_class`, or a subclass that accepts every keyword of
        `torch.cuda.Event`.
        """
        missing = _missing_event_keywords(event_class)
        if not missing:
            return event_class

        def new_event(
            cls: type,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> Any:
            options = {
                "enable_timing": enable_timing,
                "blocking": blocking,
                "interprocess": interprocess,
                "external": external,
            }
            # A keyword that is False is not passed, because the vendor may lack it.
            set_options = {name: True for name, is_set in options.items() if is_set}
            self._drop_event_keywords(set_options, missing)
            return type.__call__(cls, **set_options)

        set_name_in_errors(new_event, "Event")
        return _subclass_created_by(new_event, event_class)

    def _drop_event_keywords(self, options: dict[str, bool], missing: set[str]) -> None:
        """Remove those keywords from `options` that have no effect on this device.

        `blocking` changes only how the host waits, and `external` only how a graph
        captures. Raises `UnsupportedError` for any other keyword that the vendor's
        class lacks.
        """
        for name in missing & options.keys():
            is_needed = name != "blocking"
            if name == "external":
                is_needed = self._vendor_attribute("graph") is not None
            if is_needed:
                raise self._unsupported(f"Event({name}=True)")
            del options[name]

    @cached_property
    def Stream(self) -> type[torch.Stream]:
        """The vendor's stream class. Call it as `Stream()` or `Stream(device=...,
        priority=...)`.

        On a device without user streams, this is a class with the same methods. All its
        streams are the same queue.
        """
        if self._has_streams:
            return cast("Any", self._stream_class)
        accelerator = self

        class Stream(HostStream):
            _event_class = cast("Any", accelerator.Event)

            def synchronize(self) -> None:
                accelerator.synchronize()

            # All streams are the same queue, so each equals every other one.
            def __eq__(self, other: object) -> bool:
                return type(self) is type(other)

            def __hash__(self) -> int:
                return hash(type(self))

        return cast("Any", self._as_torch_stream_class(Stream))

    @cached_property
    def _has_streams(self) -> bool:
        """Whether streams and events work on this device. They are tried if the classes
        are torch's.

        Only a trial shows whether a device supports torch's streams.
        """
        if self._stream_class is None:
            return False
        is_from_vendor = self._stream_class is not self._torch.Stream
        if is_from_vendor:
            return True
        # torch raises these errors for functions that a backend does not implement.
        with suppress(RuntimeError, TypeError):
            stream = self._stream_class()
            event = self._torch.Event()
            event.record(stream)
            event.synchronize()
            stream.synchronize()
            # Without `record_stream`, memory could be reused while another stream still
            # reads it.
            tensor = self._torch.empty(1, device=self._device_type)
            tensor.record_stream(stream)
            return True
        return False

    def _as_torch_stream_class(self, host_stream: type) -> Any:
        """Return a subclass of `host_stream` and `torch.Stream`, for
        `Tensor.record_stream`.

        The result is `host_stream` if torch has no stream for the device.
        """
        with suppress(RuntimeError, TypeError, AttributeError):
            current = self._torch_accelerator.current_stream()
            stream_class = _torch_stream_class(self._torch.Stream, host_stream, current)
            self._make_recordable(stream_class())
            return stream_class
        return host_stream

    def _make_recordable(self, stream: Any) -> None:
        """Make `Tensor.record_stream` accept `stream`.

        If the device has no kernel for `record_stream`, a kernel that does nothing is
        registered. With only one queue, memory cannot be reused too early.
        """
        try:
            tensor = self._torch.empty(1, device=self._device_type)
        except RuntimeError:
            return  # The device does not support tensors yet.
        try:
            tensor.record_stream(stream)
        # A NotImplementedError, or the error of a fallback to the CPU.
        except RuntimeError:
            with suppress(RuntimeError):
                _register_empty_record_stream(self._torch, self._device_type)

    @cached_property
    def _only_stream(self) -> torch.Stream:
        return self.Stream()

    def stream(self, stream: torch.Stream | None) -> AbstractContextManager[Any]:
        """Return a context manager that makes `stream` the current stream. `None`
        changes nothing.
        """
        if not hasattr(stream, "__enter__"):
            return nullcontext()
        return cast("AbstractContextManager[Any]", stream)

    def set_stream(self, stream: torch.Stream) -> None:
        """Make `stream` this thread's current stream on its device, until another
        stream is set.

        Prefer `stream`, which restores the previous stream.
        """
        self.stream(stream).__enter__()  # The context is entered and never left.

    def current_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return this thread's current stream on the device."""
        self._check_device_argument(device_index, device)
        return self._only_stream

    def default_stream(
        self, device_index: Device = None, device: Device = None
    ) -> torch.Stream:
        """Return the device's default stream, or its current stream if the vendor
        provides no default stream (xpu).
        """
        if device is not None:
            device_index = self._merge_device_arguments(device_index, device)
        return self.current_stream(device_index)


def _missing_event_keywords(event_class: Any) -> set[str]:
    """Return the keywords of `torch.cuda.Event` that `event_class` does not accept."""
    known_parameters = parameters(event_class)
    if known_parameters is None:
        # This applies to torch.Event and to vendors' classes that are written in C.
        return {"external"}
    return _EVENT_KEYWORDS - {parameter.name for parameter in known_parameters}


def _subclass_created_by(create: Callable[..., Any], event_class: Any) -> Any:
    """Return a subclass of `event_class` whose call runs `create`.

    An event that the vendor creates counts as an instance of the subclass too.
    """
    # Both methods concern the class itself, so they are defined in its metaclass.
    methods = {
        "__call__": create,
        "__instancecheck__": lambda _, event: isinstance(event, event_class),
    }
    metaclass: Any = type("EventType", (type(event_class),), methods)
    members = {"__doc__": event_class.__doc__}
    return metaclass(event_class.__name__, (event_class,), members)


def _torch_stream_class(torch_stream: Any, host_stream: type, current: Any) -> Any:
    """Return a subclass of both stream classes. Every object of the subclass is the
    device's current stream.
    """
    ids = {
        "stream_id": current.stream_id,
        "device_index": current.device_index,
        "device_type": current.device_type,
    }

    def new(cls: Any, *_args: Any, **_kwargs: Any) -> Any:
        return torch_stream.__new__(cls, **ids)

    return type("Stream", (host_stream, torch_stream), {"__new__": new})


@cache  # The registration lasts as long as the library object.
def _register_empty_record_stream(torch: Any, device_type: str) -> Any:
    """Register a kernel of `record_stream` that does nothing, once for each device
    type.
    """

    def do_nothing(*_args: Any) -> None:
        return

    dispatch_key = torch._C._dispatch_key_for_device(device_type)
    library = torch.library.Library("aten", "IMPL")
    library.impl("record_stream", do_nothing, dispatch_key)
    return library


class Ranges(Base):
    """The members for named ranges in a profiler's timeline."""

    #: Whether `range_push` and `range_pop` take an NVTX domain.
    supports_nvtx_domain: bool = False
    #: The vendor's module with `range_push` and `range_pop`, such as `"nvtx"`. If empty,
    #: torch's profiler is used.
    _range_module = ""
    #: The open ranges of each thread, because a profiler has a timeline per thread.
    _ranges: ClassVar = threading.local()

    def range_push(
        self, msg: str, domain: str | None = None, category: str | None = None
    ) -> None:
        """Open a named range in the profiler's timeline. This never raises an error.

        By default, this uses `torch.profiler.record_function`, and costs nothing while
        no profiler runs. `domain` and `category` have an effect only with vendors that
        support them.
        """
        if self._range_module:
            with suppress(Exception):
                self._vendor_attribute(self._range_module).range_push(str(msg))
            return
        # A range that is opened while no profiler runs is stored too, so that its end
        # does not close another range.
        context: Any = nullcontext()
        if self._torch.autograd._profiler_enabled():
            context = self._torch.profiler.record_function(str(msg))
        context.__enter__()
        if not hasattr(self._ranges, "open"):
            self._ranges.open = []
        self._ranges.open.append(context)

    def range_pop(self, domain: str | None = None) -> None:
        """Close the range that this thread opened last. Do nothing if no range is open.
        This never raises an error.
        """
        if self._range_module:
            with suppress(Exception):
                self._vendor_attribute(self._range_module).range_pop()
            return
        open_ranges = getattr(self._ranges, "open", [])
        if open_ranges:
            innermost = open_ranges.pop()
            innermost.__exit__(None, None, None)

    @contextmanager
    def range(self, msg: str) -> Iterator[None]:
        """Return a context manager that opens a named range and closes it when the block ends."""
        self.range_push(msg)
        try:
            yield
        finally:
            self.range_pop()
