"""Checks of streams, events and graphs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

from accel_core import Accelerator, UnsupportedError
from accel_testing.conformance.base import BackendTestBase
from accel_testing.conformance.claims import require, require_raises, skip_unsupported
from accel_testing.conformance.compute.ordering import (
    find_sleep,
    queue_long_work,
    require_memory_waits_for_streams,
    require_queries_do_not_wait,
    require_replays_in_order,
    require_waits_across_devices,
    require_waits_for_long_work,
    require_waits_on_named_stream,
)
from accel_testing.conformance.compute.test_amounts import require_pinned_memory

__all__ = ["TestQueues"]

_SIZE = 1 << 16
_LARGE = 1 << 20
#: A number of float32 elements whose copy takes milliseconds, while a query takes microseconds.
_HUGE = 1 << 22
#: The number of seconds after which a query is no longer repeated.
_QUERY_SECONDS = 5.0


def _query_until_done(
    query: Callable[[], Any], wait: Callable[[], Any], call: str
) -> None:
    """Repeat `query` until it returns True; after `_QUERY_SECONDS`, call `wait`, and require True.

    Raises `BrokenPromise` if `query` returns neither True nor False.
    """
    deadline = time.monotonic() + _QUERY_SECONDS
    is_done = query()
    while not is_done:
        require(
            is_done is False, f"{call} returned {is_done!r}; expected True or False"
        )
        if time.monotonic() > deadline:
            wait()
            is_done = query()
            require(
                is_done is True,
                f"{call} returned {is_done!r} after waiting for the work; expected True",
            )
            return
        is_done = query()
    require(is_done is True, f"{call} returned {is_done!r}; expected True or False")


class TestQueues(BackendTestBase):
    """Work on streams must run in the order that events and waits define."""

    def test_work_on_a_stream_is_seen_after_waiting(
        self, accelerator: Accelerator
    ) -> None:
        """After a wait for a side stream, by stream or event, the stream's result is complete."""
        stream, current = accelerator.Stream(), accelerator.current_stream()
        waits: dict[str, Callable[[Any], object]] = {
            "current_stream().wait_stream(s)": lambda _: current.wait_stream(stream),
            "current_stream().wait_event(e)": current.wait_event,
            "e.wait()": lambda event: event.wait(),
            "e.synchronize()": lambda event: event.synchronize(),
            "s.synchronize()": lambda _: stream.synchronize(),
            "synchronize()": lambda _: accelerator.synchronize(),
        }
        for description, wait in waits.items():
            total = torch.zeros(_SIZE, device=accelerator.device())
            stream.wait_stream(current)
            with accelerator.stream(stream):
                queue_long_work(accelerator)
                for _ in range(10):
                    total += 1
                event = accelerator.Event()
                event.record()
            wait(event)
            result = total.sum().item()
            require(
                result == 10 * _SIZE,
                f"after {description}, the sum is {result:g}; expected {10 * _SIZE}",
            )
        stream.synchronize()
        require(
            stream.query() is True,
            "a stream's query() did not return True after its synchronize()",
        )

    def test_done_is_done(self, accelerator: Accelerator) -> None:
        """Long copies are complete after a wait and after `query()` returned True, even of a reused event."""
        require_pinned_memory(accelerator)
        last = accelerator.device_count() - 1
        indices = [0]
        if accelerator.device(last) != accelerator.device(0):
            indices.append(last)
        for index in indices:
            with accelerator.device_guard(index):
                self._require_done_on(accelerator, index)

    def _require_done_on(self, accelerator: Accelerator, index: int) -> None:
        """Require that copies to and from the device are complete after each kind of wait."""
        device = accelerator.device(index)
        stream, event = accelerator.Stream(device=device), accelerator.Event()
        current = accelerator.current_stream()
        on_device = torch.zeros(_HUGE, device=device)
        source = accelerator.pin_memory(torch.ones(_HUGE))
        back = accelerator.pin_memory(torch.zeros(_HUGE))

        def query_event() -> None:
            _query_until_done(event.query, event.synchronize, "e.query()")

        def query_stream() -> None:
            _query_until_done(stream.query, stream.synchronize, "s.query()")

        waits: dict[str, Callable[[], object]] = {
            "e.query() returned True": query_event,
            "s.query() returned True": query_stream,
            "e.synchronize()": event.synchronize,
            "s.synchronize()": stream.synchronize,
            f"synchronize({index})": lambda: accelerator.synchronize(index),
            "e.query() returned True, e recorded again": query_event,
            "e.synchronize(), e recorded again": event.synchronize,
        }
        for description, wait in waits.items():
            copies = f"a copy of {_HUGE} ones, then e recorded, on a stream s of device {index}"
            scenario = f"{copies}: when {description},"
            on_device.zero_()
            stream.wait_stream(current)
            with accelerator.stream(stream):
                on_device.copy_(source, non_blocking=True)
                event.record()
            wait()
            total = on_device[-_SIZE:].sum().item()
            require(
                total == _SIZE,
                f"{scenario} the last {_SIZE} on the device add up to {total:g}; expected {_SIZE}",
            )
            back.zero_()
            stream.wait_stream(current)
            with accelerator.stream(stream):
                back.copy_(on_device, non_blocking=True)
                event.record()
            wait()
            total = back[-_SIZE:].sum().item()
            stream.synchronize()
            require(
                total == _SIZE,
                f"{scenario} the last {_SIZE} on the host add up to {total:g}; expected {_SIZE}",
            )

    def test_a_stream_waits_for_another(self, accelerator: Accelerator) -> None:
        """A stream that waits for another stream, by stream or event, reads the other stream's writes."""
        stream, current = accelerator.Stream(), accelerator.current_stream()
        for method in ("wait_stream", "wait_event"):
            total = torch.zeros(_SIZE, device=accelerator.device())
            queue_long_work(accelerator)
            total += 1
            if method == "wait_stream":
                stream.wait_stream(current)
            else:
                event = accelerator.Event()
                event.record()
                stream.wait_event(event)
            with accelerator.stream(stream):
                doubled = (total * 2).sum()
            stream.synchronize()
            result = doubled.item()
            require(
                result == 2 * _SIZE,
                f"after s.{method}, the sum on s is {result:g}; expected {2 * _SIZE}",
            )
        if not getattr(stream, "one_queue", False):
            require_waits_on_named_stream(accelerator)
            require_memory_waits_for_streams(accelerator)

    def test_late_copies(self, accelerator: Accelerator) -> None:
        """Copies from and to pinned memory are complete after a wait for their stream."""
        require_pinned_memory(accelerator)
        stream, current = accelerator.Stream(), accelerator.current_stream()
        source = accelerator.pin_memory(torch.arange(float(_LARGE)))
        back = accelerator.pin_memory(torch.zeros(_LARGE))
        with accelerator.stream(stream):
            on_device = source.to(accelerator.device(), non_blocking=True)
        current.wait_stream(stream)
        doubled = on_device * 2
        back.copy_(doubled, non_blocking=True)
        event = accelerator.Event()
        event.record()
        event.synchronize()
        wrong = (back != source * 2).nonzero()
        has_wrong = len(wrong) > 0
        first = int(wrong[0]) if has_wrong else 0
        require(
            not has_wrong,
            f"pin_memory(t).to(device(), non_blocking=True) on s, current_stream().wait_stream(s), * 2, "
            f"copy_(non_blocking=True) back, e.record(), e.synchronize(): element {first} of {_LARGE} is "
            f"{back[first]:g}; expected {2 * first}. One of these calls does not wait",
        )

    def test_every_device_is_waited_for(self, accelerator: Accelerator) -> None:
        """`synchronize(i)` and `current_stream(i)` use device i, whichever device is the current device."""
        last = accelerator.device_count() - 1
        if accelerator.device(last) == accelerator.device(0):
            skip_unsupported("there is one device")
        if getattr(accelerator.Stream, "one_queue", False):
            skip_unsupported("the device has only one stream")
        device = accelerator.device(last)
        for name in ("current_stream", "default_stream"):
            stream_device = getattr(accelerator, name)(last).device
            require(
                stream_device == device,
                f"{name}({last}) is a stream of {stream_device}",
            )
        stream = accelerator.Stream(device=device)
        ones = torch.zeros(_SIZE, device=device)
        accelerator.synchronize(last)
        with accelerator.stream(stream):
            ones += 1
        accelerator.synchronize(last)
        total = ones.sum().item()
        require(
            total == _SIZE,
            f"after synchronize({last}), a sum on device {last} is {total:g}",
        )
        require_waits_across_devices(accelerator, stream)

    def test_claims_about_order(self, accelerator: Accelerator) -> None:
        """If the backend claims so, calls return after their work is done, and streams need no waits."""
        if accelerator.resolves_data_dependency():
            stream = accelerator.Stream()
            total = torch.zeros(_SIZE, device=accelerator.device())
            with accelerator.stream(stream):
                queue_long_work(accelerator)
                total += 1
            result = total.sum().item()
            require(
                result == _SIZE,
                f"resolves_data_dependency() is True; without a wait a sum is {result:g}; expected {_SIZE}",
            )
        if not (accelerator.is_synchronized_device() and accelerator.is_accelerator()):
            return
        if getattr(accelerator.Stream, "one_queue", False):
            return  # Metal has one queue and claims this, although calls may return before their work is done
        require_pinned_memory(accelerator)
        source = accelerator.pin_memory(torch.ones(16 * _LARGE))
        on_device = torch.empty(16 * _LARGE, device=accelerator.device())
        event = accelerator.Event()
        queue_long_work(accelerator)
        on_device.copy_(source, non_blocking=True)
        event.record()
        is_done = event.query()
        accelerator.synchronize()
        message = "is_synchronized_device() is True: work is done when a call returns"
        require(
            is_done,
            f"{message}, but after copy_(non_blocking=True) an event's query() returned {is_done!r}",
        )

    def test_stream_is_current_inside(self, accelerator: Accelerator) -> None:
        """`stream(s)` selects a stream and its device, and restores both afterwards, even after an error."""
        before, stream = accelerator.current_stream(), accelerator.Stream()
        with accelerator.stream(stream):
            inside = accelerator.current_stream()
        after = accelerator.current_stream()
        require(
            after == before,
            f"after stream(s) current_stream() returned {after}; expected {before}",
        )
        with contextlib.suppress(KeyError), accelerator.stream(stream):
            raise KeyError
        after = accelerator.current_stream()
        require(
            after == before,
            f"after an error in stream(s) current_stream() returned {after}; expected {before}",
        )
        require(
            inside == stream,
            f"inside stream(s) current_stream() returned {inside}; expected s, {stream}",
        )
        hashes = hash(inside), hash(stream)
        require(
            hashes[0] == hashes[1],
            f"two equal objects for one stream have the different hashes {hashes}",
        )
        last = accelerator.device_count() - 1
        has_one_queue = getattr(stream, "one_queue", False)
        if accelerator.device(last) != accelerator.device(0) and not has_one_queue:
            self._require_streams_of_devices_differ(accelerator, stream, last)

    def _require_streams_of_devices_differ(
        self, accelerator: Accelerator, stream: Any, last: int
    ) -> None:
        """Require that the last device has different streams, and that their blocks select the device."""
        module: Any = getattr(torch, accelerator.device_type, None)
        if hasattr(
            module, "default_stream"
        ):  # the default stream is otherwise the current stream
            default = accelerator.default_stream()
            with accelerator.stream(stream):
                inside = accelerator.default_stream()
            require(
                inside == default,
                f"inside stream(s) default_stream() returned {inside}; expected {default}",
            )
        first_streams = self._streams_of(accelerator, 0)
        last_streams = self._streams_of(accelerator, last)
        equal = [
            f"{first} and {other}"
            for first in first_streams
            for other in last_streams
            if first == other
        ]
        require(not equal, f"streams of two devices are equal: {', '.join(equal)}")
        selected = accelerator.current_device()
        with accelerator.stream(accelerator.Stream(device=accelerator.device(last))):
            device_inside = accelerator.current_device()
        require(
            device_inside == last,
            f"inside a stream of device {last}, current_device() returned {device_inside}",
        )
        device_after = accelerator.current_device()
        require(
            device_after == selected,
            f"after a stream of another device, current_device() returned {device_after}",
        )

    def _streams_of(self, accelerator: Accelerator, index: int) -> list[Any]:
        """Return the default stream of a device, and four new streams."""
        device = accelerator.device(index)
        new = [accelerator.Stream(device=device) for _ in range(4)]
        return [accelerator.default_stream(index), *new]

    def test_set_stream_stays(self, accelerator: Accelerator) -> None:
        """`set_stream(s)` makes `s` the current stream until another stream is set."""
        before, stream = accelerator.current_stream(), accelerator.Stream()
        try:
            accelerator.set_stream(stream)
            inside = accelerator.current_stream()
        finally:
            accelerator.set_stream(before)
        require(inside == stream, "after set_stream(s), the current stream is not s")
        require(
            accelerator.current_stream() == before,
            "set_stream did not restore the previous stream",
        )
        last = accelerator.device_count() - 1
        has_one_queue = getattr(stream, "one_queue", False)
        if accelerator.device(last) == accelerator.device(0) or has_one_queue:
            return
        current_on_last = accelerator.current_stream(last)
        stream_on_last = accelerator.Stream(device=accelerator.device(last))
        try:
            accelerator.set_stream(stream_on_last)
            after = accelerator.current_stream(last)
        finally:
            accelerator.set_stream(current_on_last)
            accelerator.set_device(0)
        require(
            after == stream_on_last,
            f"after set_stream(s), s of device {last}, current_stream({last}) is {after}; expected "
            f"{stream_on_last}",
        )
        require(
            accelerator.current_stream() == before,
            f"set_stream(s) with a stream of device {last} changed the current stream of device 0",
        )

    def test_events_tell_time(self, accelerator: Accelerator) -> None:
        """`elapsed_time` is the time of the work between two events in milliseconds, and never negative."""
        start = accelerator.Event(enable_timing=True)
        end = accelerator.Event(enable_timing=True)
        tensor = torch.ones(256, 256, device=accelerator.device())
        accelerator.synchronize()
        began = time.perf_counter()
        start.record()
        for _ in range(20):
            tensor = (tensor @ tensor).clamp(max=1.0)
        end.record()
        end.synchronize()
        host_milliseconds = (time.perf_counter() - began) * 1e3
        require(
            end.query() is True,
            "an event's query() did not return True after its synchronize()",
        )
        milliseconds = start.elapsed_time(end)
        require(
            type(milliseconds) is float,
            f"elapsed_time returned {milliseconds!r}; expected a float of milliseconds",
        )
        time.sleep(0.02)  # this work is not measured
        again = start.elapsed_time(end)
        require(
            again == milliseconds,
            f"elapsed_time returned {milliseconds}, and then {again} for the same events",
        )
        # A result in seconds or microseconds would be off by a factor of a thousand.
        require(
            host_milliseconds / 200 <= milliseconds <= host_milliseconds * 1.5 + 1,
            f"elapsed_time returned {milliseconds:.4f}; by the host's clock, {host_milliseconds:.4f} ms",
        )
        self._require_time_of_work(accelerator, start, end)

    def _require_time_of_work(
        self, accelerator: Accelerator, start: Any, end: Any
    ) -> None:
        """Require the time of the work and not of its launch, including fractions of milliseconds."""
        sleep = find_sleep(accelerator)
        if sleep is None:
            return
        times = []
        with accelerator.stream(accelerator.Stream()):
            for milliseconds in (3.3, 3.7, 50):
                start.record()
                sleep(milliseconds)
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
        message = (
            f"elapsed_time of work of about 3, 4 and 50 ms on a stream returned {times}"
        )
        require(
            times[-1] > 25,
            f"{message}; expected about these times: the launch time differs from the time of the work",
        )
        require(
            any(time % 1 for time in times),
            f"{message}; expected fractions of milliseconds too",
        )

    def test_synchronize_waits(self, accelerator: Accelerator) -> None:
        """After `synchronize`, the work on every stream is done."""
        stream = accelerator.Stream()
        stream.wait_stream(accelerator.current_stream())
        with accelerator.stream(stream):
            tensor = torch.ones(_LARGE, device=accelerator.device())
            for _ in range(100):  # the work takes longer than its launch
                tensor = tensor * 1.01
            event = stream.record_event()
        accelerator.synchronize()
        require(
            event.query() is True,
            "after synchronize(), query() of an event on another stream returned False; expected True",
        )
        require_waits_for_long_work(accelerator)
        require_queries_do_not_wait(accelerator)

    def test_graph_replays_with_new_inputs(self, accelerator: Accelerator) -> None:
        """A replayed graph uses the current values of its inputs, and can capture again after `reset_graph`;
        without graphs, the block runs.
        """
        self._require_block_runs_without_graph(accelerator)
        graph = accelerator.create_graph()
        has_graphs = accelerator.supports_graphs()
        require(
            (graph is not None) is has_graphs,
            f"supports_graphs() returned {has_graphs}, but create_graph() returned {graph!r}",
        )
        if has_graphs:
            require_raises(
                lambda: accelerator.create_graph(no_such_option=True),
                UnsupportedError,
                "create_graph(no_such_option=True)",
            )
        input_ = torch.zeros(8, device=accelerator.device())
        output = torch.zeros(8, device=accelerator.device())
        warm_up = (
            input_ * 2
        )  # a kernel that is compiled at its first use cannot be captured
        del warm_up
        accelerator.synchronize()
        with accelerator.capture_to_graph(graph):
            output.copy_(input_ * 2 + 1)
        accelerator.synchronize()
        if not has_graphs:
            require(
                output.tolist() == [1.0] * 8,
                f"a device without graphs must run the block exactly once; the result is {output.tolist()}",
            )
            skip_unsupported("the device has no graphs")
        require_replays_in_order(accelerator)
        for value in (3.0, 5.0):
            input_.fill_(value)
            accelerator.replay_graph(graph)
            accelerator.synchronize()
            expected = [value * 2 + 1] * 8
            require(
                output.tolist() == expected,
                f"capture_to_graph(g) of out.copy_(x * 2 + 1), x.fill_({value:g}), replay_graph(g): out "
                f"is {output.tolist()}; expected {expected}",
            )
        try:
            accelerator.reset_graph(graph)
        except (
            UnsupportedError
        ):  # an instance of the vendor's class can capture only once
            return
        with accelerator.capture_to_graph(graph):
            output.copy_(input_ * 2)
        input_.fill_(9.0)
        accelerator.replay_graph(graph)
        accelerator.synchronize()
        require(
            output.tolist() == [18.0] * 8,
            "reset_graph(g), capture_to_graph(g) of out.copy_(x * 2), x.fill_(9), replay_graph(g): out "
            f"is {output.tolist()}; expected {[18.0] * 8}",
        )

    def _require_block_runs_without_graph(self, accelerator: Accelerator) -> None:
        """Require that `capture_to_graph(None)` runs its block once, and that members accept `None`."""
        numbers = torch.zeros(2, device=accelerator.device())
        with accelerator.capture_to_graph(None):
            numbers.add_(1)
        for member in (
            "replay_graph",
            "instantiate_graph",
            "reset_graph",
            "enable_graph_debug_mode",
        ):
            getattr(accelerator, member)(None)
        accelerator.debug_dump_graph(None, "no file")
        require(
            numbers.tolist() == [1.0, 1.0],
            f"capture_to_graph(None) must run the block exactly once; the result is {numbers.tolist()}",
        )

    def test_captures_leave_all_as_before(self, accelerator: Accelerator) -> None:
        """A capture uses the given stream, restores the previous stream and propagates errors; graphs are
        independent.
        """
        if not accelerator.supports_graphs():
            skip_unsupported("the device has no graphs")
        before, stream = accelerator.current_stream(), accelerator.Stream()
        outputs = [torch.zeros(2, device=accelerator.device()) for _ in range(2)]
        graphs = [accelerator.create_graph() for _ in outputs]
        accelerator.synchronize()
        for value, (graph, output) in enumerate(zip(graphs, outputs, strict=True), 1):
            with accelerator.capture_to_graph(graph, stream=stream):
                inside = accelerator.current_stream()
                output.add_(value)
            require(
                inside == stream,
                "inside capture_to_graph(g, stream=s), the current stream is not s",
            )
            after = accelerator.current_stream()
            require(
                after == before,
                f"after capture_to_graph(g, stream=s), the current stream is {after}",
            )
        accelerator.synchronize()
        captured = [output.tolist() for output in outputs]
        require(
            not any(map(any, captured)),
            f"two captures of add_ to zeros left {captured}; expected zeros until a graph is replayed",
        )
        accelerator.replay_graph(graphs[1])
        accelerator.synchronize()
        added = [round(output.tolist()[0]) for output in outputs]
        require(
            added == [0, 2],
            f"replaying the second of two graphs added {added} to their outputs; expected [0, 2]",
        )
        self._require_error_ends_capture(accelerator, stream)

    def _require_error_ends_capture(
        self, accelerator: Accelerator, stream: Any
    ) -> None:
        """Require that an error leaves the capture, ends it, and restores the current stream."""
        before = accelerator.current_stream()
        has_raised = False
        try:
            with accelerator.capture_to_graph(
                accelerator.create_graph(), stream=stream
            ):
                raise KeyError
        except KeyError:
            has_raised = True
        require(
            has_raised,
            "an error raised inside capture_to_graph(g) did not leave the block",
        )
        after = accelerator.current_stream()
        require(
            after == before,
            f"after an error in capture_to_graph(g, stream=s), the current stream is {after}",
        )
        total = (torch.ones(4, device=accelerator.device()) * 2).sum().item()
        require(
            total == 8, f"after an error in a capture, the sum of four twos is {total}"
        )

    def test_capturing_is_told(self, accelerator: Accelerator) -> None:
        """`is_current_stream_capturing` is True inside a capture and False outside one."""
        is_capturing = accelerator.is_current_stream_capturing
        call = "is_current_stream_capturing() returned"
        outside = is_capturing()
        require(
            outside is False, f"{call} {outside!r} outside a capture; expected False"
        )
        if not accelerator.supports_graphs():
            skip_unsupported("the device has no graphs")
        graph = accelerator.create_graph()
        output = torch.zeros(1, device=accelerator.device())
        other_stream = accelerator.Stream()
        with accelerator.capture_to_graph(graph):
            inside = is_capturing()
            with accelerator.stream(other_stream):
                on_other_stream = is_capturing()
            output.add_(1)
        require(
            on_other_stream is False or getattr(other_stream, "one_queue", False),
            f"{call} {on_other_stream!r} inside capture_to_graph(g), while a stream that does "
            "not take part "
            "in the capture is current; expected False",
        )
        with (
            contextlib.suppress(KeyError),
            accelerator.capture_to_graph(accelerator.create_graph()),
        ):
            raise KeyError
        after = is_capturing()
        require(
            after is False,
            f"{call} {after!r} after an error inside capture_to_graph(g); expected False: the "
            "capture has not ended",
        )
        require(
            inside is True,
            f"{call} {inside!r} inside capture_to_graph(g); expected True",
        )
