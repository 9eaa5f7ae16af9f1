"""Streams, events and graphs."""

from __future__ import annotations

import time

import torch

from accel_core import Accelerator
from accel_testing.conformance.claims import not_claimed, require
from accel_testing.conformance.subject import Subject

__all__ = ["TestQueues"]

_SIZE = 1 << 16
_LARGE = 1 << 20


class TestQueues(Subject):
    """Work on streams happens in the order that events and waits say."""

    def test_work_on_a_stream_is_seen_after_waiting(self, accelerator: Accelerator) -> None:
        """What a side stream computed is there for whoever has waited for it, by stream and by event."""
        side = accelerator.Stream()
        for way in ("stream", "event", "synchronize"):
            total = torch.zeros(_SIZE, device=accelerator.device())
            side.wait_stream(accelerator.current_stream())
            with accelerator.stream(side):
                for _ in range(10):
                    total += 1
                done = side.record_event()
            if way == "stream":
                accelerator.current_stream().wait_stream(side)
            elif way == "event":
                accelerator.current_stream().wait_event(done)
            else:
                side.synchronize()
                require(side.query() is True, "a stream's query() after its synchronize() is not True")
            seen = total.sum().item()
            require(seen == 10 * _SIZE, f"after waiting by {way} the sum is {seen:g}; expected {10 * _SIZE}")

    def test_stream_is_current_inside(self, accelerator: Accelerator) -> None:
        """`stream(s)` makes it current, with its device, and restores what was before, an error or not."""
        before, side = accelerator.current_stream(), accelerator.Stream()
        with accelerator.stream(side):
            inside = accelerator.current_stream()
        require(accelerator.current_stream() == before, "stream(s) did not restore the stream")
        try:
            with accelerator.stream(side):
                raise KeyError
        except KeyError:
            pass
        require(accelerator.current_stream() == before, "after an error stream(s) did not restore it")
        require(inside == side, "the current stream inside stream(s) is not s")
        last, now = accelerator.device_count() - 1, accelerator.current_device()
        other = accelerator.Stream(device=accelerator.device(last))
        if accelerator.device(last) == accelerator.device(0) or getattr(other, "one_queue", False):
            return  # every stream is the current one
        with accelerator.stream(other):
            there = accelerator.current_device()
        require(there == last, f"inside the stream of device {last} current_device() gave {there}")
        back = accelerator.current_device()
        require(back == now, f"after the stream of another device current_device() gave {back}")

    def test_set_stream_stays(self, accelerator: Accelerator) -> None:
        """`set_stream(s)` makes it current until another one is set."""
        before, side = accelerator.current_stream(), accelerator.Stream()
        try:
            accelerator.set_stream(side)
            inside = accelerator.current_stream()
        finally:
            accelerator.set_stream(before)
        require(inside == side, "the current stream after set_stream(s) is not s")
        require(accelerator.current_stream() == before, "the current stream was not set back")

    def test_events_tell_time(self, accelerator: Accelerator) -> None:
        """`elapsed_time` is in milliseconds, of the work between two events, and is never negative."""
        start, end = accelerator.Event(enable_timing=True), accelerator.Event(enable_timing=True)
        tensor = torch.ones(256, 256, device=accelerator.device())
        accelerator.synchronize()
        began = time.perf_counter()
        start.record()
        for _ in range(20):
            tensor = (tensor @ tensor).clamp(max=1.0)
        end.record()
        end.synchronize()
        wall = (time.perf_counter() - began) * 1e3
        require(end.query() is True, "query() after synchronize() is not True")
        took = start.elapsed_time(end)
        require(type(took) is float, f"elapsed_time gave {took!r}; expected a float of milliseconds")
        # As long as the host saw at most; a unit of seconds would be a thousandth, of microseconds more.
        require(
            wall / 200 <= took <= wall * 1.5 + 1,
            f"elapsed_time gave {took:.4f} for what took the host {wall:.4f} ms",
        )

    def test_synchronize_waits(self, accelerator: Accelerator) -> None:
        """After `synchronize` everything is done, on every stream."""
        side = accelerator.Stream()
        side.wait_stream(accelerator.current_stream())
        with accelerator.stream(side):
            tensor = torch.ones(_LARGE, device=accelerator.device())
            for _ in range(100):  # more than launching them takes
                tensor = tensor * 1.01
            event = side.record_event()
        accelerator.synchronize()
        require(event.query() is True, "after synchronize() an event on another stream has not happened")

    def test_graph_replays_with_new_inputs(self, accelerator: Accelerator) -> None:
        """A captured graph computes anew on what its inputs hold by then; without one the work runs."""
        once = torch.zeros(2, device=accelerator.device())
        with accelerator.capture_to_graph(None):
            once.add_(1)
        accelerator.replay_graph(None)
        require(once.tolist() == [1.0, 1.0], f"without a graph the block runs, once: {once.tolist()}")
        graph = accelerator.create_graph()
        claimed = accelerator.supports_graphs()
        require((graph is not None) is claimed, f"supports_graphs() gave {claimed}, create_graph() {graph!r}")
        given = torch.zeros(8, device=accelerator.device())
        out = torch.zeros(8, device=accelerator.device())
        warm = given * 2  # what is compiled or allocated at the first use is not captured
        del warm
        accelerator.synchronize()
        with accelerator.capture_to_graph(graph):
            out.copy_(given * 2 + 1)
        accelerator.synchronize()
        if not claimed:
            require(out.tolist() == [1.0] * 8, f"without graphs the block runs, once: {out.tolist()}")
            not_claimed("the device has no graphs")
        for value in (3.0, 5.0):
            given.fill_(value)
            accelerator.replay_graph(graph)
            accelerator.synchronize()
            expected = [value * 2 + 1] * 8
            require(out.tolist() == expected, f"replayed with {value:g}: {out.tolist()}")

    def test_capturing_is_told(self, accelerator: Accelerator) -> None:
        """`is_current_stream_capturing` is True inside a capture and False outside one."""
        require(accelerator.is_current_stream_capturing() is False, "it is True outside a capture")
        if not accelerator.supports_graphs():
            not_claimed("the device has no graphs")
        graph, out = accelerator.create_graph(), torch.zeros(1, device=accelerator.device())
        with accelerator.capture_to_graph(graph):
            inside = accelerator.is_current_stream_capturing()
            out.add_(1)
        require(inside is True, "it is False inside a capture")
        require(accelerator.is_current_stream_capturing() is False, "it is True after a capture")
