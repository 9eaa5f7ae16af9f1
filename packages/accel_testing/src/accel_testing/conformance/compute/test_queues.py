"""Streams, events and graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from accel_core import Accelerator, UnsupportedError
from accel_testing.conformance.claims import not_claimed, refused, require
from accel_testing.conformance.compute.ordered import (
    keeps_busy,
    long_work_is_waited_for,
    memory_waits_for_streams,
    questions_do_not_wait,
    replays_in_order,
    sleeper,
    waits_across_devices,
    waits_as_told,
)
from accel_testing.conformance.compute.test_amounts import require_page_locked
from accel_testing.conformance.subject import Subject

__all__ = ["TestQueues"]

_SIZE = 1 << 16
_LARGE = 1 << 20
#: Of float32: a copy takes milliseconds, and a question microseconds.
_HUGE = 1 << 22
#: Seconds after which work that is not done is waited for.
_PATIENCE = 5.0


def _asked(query: Callable[[], Any], wait: Callable[[], Any], what: str) -> None:
    """Return once `query` gives True; what is not done after `wait` is never done."""
    end = time.monotonic() + _PATIENCE
    while not (told := query()):
        require(told is False, f"{what} gave {told!r}; expected True or False")
        if time.monotonic() > end:
            wait()
            over = query()
            require(
                over is True,
                f"{what} gave {over!r} once the work was waited for; expected True",
            )
            return
    require(told is True, f"{what} gave {told!r}; expected True or False")


class TestQueues(Subject):
    """Work on streams happens in the order that events and waits say."""

    def test_work_on_a_stream_is_seen_after_waiting(
        self, accelerator: Accelerator
    ) -> None:
        """After waiting for a side stream, by stream or by event, its result is complete."""
        side, now = accelerator.Stream(), accelerator.current_stream()
        ways: dict[str, Callable[[Any], object]] = {
            "current_stream().wait_stream(s)": lambda _: now.wait_stream(side),
            "current_stream().wait_event(e)": now.wait_event,
            "e.wait()": lambda done: done.wait(),
            "e.synchronize()": lambda done: done.synchronize(),
            "s.synchronize()": lambda _: side.synchronize(),
            "synchronize()": lambda _: accelerator.synchronize(),
        }
        for way, wait in ways.items():
            total = torch.zeros(_SIZE, device=accelerator.device())
            side.wait_stream(now)
            with accelerator.stream(side):
                keeps_busy(accelerator)
                for _ in range(10):
                    total += 1
                done = accelerator.Event()
                done.record()
            wait(done)
            seen = total.sum().item()
            require(
                seen == 10 * _SIZE,
                f"after {way} the sum is {seen:g}; expected {10 * _SIZE}",
            )
        side.synchronize()
        require(
            side.query() is True,
            "a stream's query() after its synchronize() is not True",
        )

    def test_done_is_done(self, accelerator: Accelerator) -> None:
        """After `query()` gave True, or a wait, long copies are complete; with an event used again too."""
        require_page_locked(accelerator)
        last = accelerator.device_count() - 1
        for index in dict.fromkeys(
            (0, last if accelerator.device(last) != accelerator.device(0) else 0)
        ):
            with accelerator.device_guard(index):
                self._done_on(accelerator, index)

    def _done_on(self, accelerator: Accelerator, index: int) -> None:
        place = accelerator.device(index)
        side, now, done = (
            accelerator.Stream(device=place),
            accelerator.current_stream(),
            accelerator.Event(),
        )
        there = torch.zeros(_HUGE, device=place)
        source = accelerator.pin_memory(torch.ones(_HUGE))
        back = accelerator.pin_memory(torch.zeros(_HUGE))
        ways: dict[str, Callable[[], object]] = {
            "e.query() gave True": lambda: _asked(
                done.query, done.synchronize, "e.query()"
            ),
            "s.query() gave True": lambda: _asked(
                side.query, side.synchronize, "s.query()"
            ),
            "e.synchronize()": done.synchronize,
            "s.synchronize()": side.synchronize,
            f"synchronize({index})": lambda: accelerator.synchronize(index),
            "e.query() gave True, e recorded again": lambda: _asked(
                done.query, done.synchronize, "e.query()"
            ),
            "e.synchronize(), e recorded again": done.synchronize,
        }
        for way, wait in ways.items():
            said = f"a copy of {_HUGE} ones, then e recorded, on a stream s of device {index}: when {way},"
            there.zero_()
            side.wait_stream(now)
            with accelerator.stream(side):
                there.copy_(source, non_blocking=True)
                done.record()
            wait()
            seen = there[-_SIZE:].sum().item()
            require(
                seen == _SIZE,
                f"{said} the last {_SIZE} on the device add up to {seen:g}; expected {_SIZE}",
            )
            back.zero_()
            side.wait_stream(now)
            with accelerator.stream(side):
                back.copy_(there, non_blocking=True)
                done.record()
            wait()
            seen = back[-_SIZE:].sum().item()
            side.synchronize()
            require(
                seen == _SIZE,
                f"{said} the last {_SIZE} on the host add up to {seen:g}; expected {_SIZE}",
            )

    def test_a_stream_waits_for_another(self, accelerator: Accelerator) -> None:
        """A stream that waits for another, by stream or by event, reads what that one has written."""
        side, now = accelerator.Stream(), accelerator.current_stream()
        for way in ("wait_stream", "wait_event"):
            total = torch.zeros(_SIZE, device=accelerator.device())
            keeps_busy(accelerator)
            total += 1
            if way == "wait_stream":
                side.wait_stream(now)
            else:
                done = accelerator.Event()
                done.record()
                side.wait_event(done)
            with accelerator.stream(side):
                seen = (total * 2).sum()
            side.synchronize()
            found = seen.item()
            require(
                found == 2 * _SIZE,
                f"after s.{way} the sum on s is {found:g}; expected {2 * _SIZE}",
            )
        if not getattr(side, "one_queue", False):
            waits_as_told(accelerator)
            memory_waits_for_streams(accelerator)

    def test_late_copies(self, accelerator: Accelerator) -> None:
        """A copy from or to page-locked memory is complete once its stream was waited for."""
        require_page_locked(accelerator)
        side, now = accelerator.Stream(), accelerator.current_stream()
        source = accelerator.pin_memory(torch.arange(float(_LARGE)))
        back = accelerator.pin_memory(torch.zeros(_LARGE))
        with accelerator.stream(side):
            here = source.to(accelerator.device(), non_blocking=True)
        now.wait_stream(side)
        twice = here * 2
        back.copy_(twice, non_blocking=True)
        done = accelerator.Event()
        done.record()
        done.synchronize()
        wrong = (back != source * 2).nonzero()
        first = int(wrong[0]) if len(wrong) else 0
        require(
            not len(wrong),
            f"pin_memory(t).to(device(), non_blocking=True) on s, current_stream().wait_stream(s), * 2, "
            f"copy_(non_blocking=True) back, e.record(), e.synchronize(): at {first} of {_LARGE} it is "
            f"{back[first]:g}; expected {2 * first}. One of them does not wait",
        )

    def test_every_device_is_waited_for(self, accelerator: Accelerator) -> None:
        """`synchronize(i)` waits for device i, and `current_stream(i)` is its stream, whatever is current."""
        last = accelerator.device_count() - 1
        if accelerator.device(last) == accelerator.device(0):
            not_claimed("there is one device")
        if getattr(accelerator.Stream, "one_queue", False):
            not_claimed("every stream is the only one")
        place = accelerator.device(last)
        for name in ("current_stream", "default_stream"):
            found = getattr(accelerator, name)(last).device
            require(found == place, f"{name}({last}) is a stream of {found}")
        side = accelerator.Stream(device=place)
        there = torch.zeros(_SIZE, device=place)
        accelerator.synchronize(last)
        with accelerator.stream(side):
            there += 1
        accelerator.synchronize(last)
        seen = there.sum().item()
        require(
            seen == _SIZE,
            f"after synchronize({last}) a sum on device {last} is {seen:g}",
        )
        waits_across_devices(accelerator, side)

    def test_claims_about_order(self, accelerator: Accelerator) -> None:
        """If the backend says so, calls return after their work is done, and streams need no waits."""
        if accelerator.resolves_data_dependency():
            side = accelerator.Stream()
            total = torch.zeros(_SIZE, device=accelerator.device())
            with accelerator.stream(side):
                keeps_busy(accelerator)
                total += 1
            seen = total.sum().item()
            said = f"resolves_data_dependency() is True, and without a wait a sum is {seen:g}, not {_SIZE}"
            require(seen == _SIZE, said)
        if not (accelerator.is_synchronized_device() and accelerator.is_accelerator()):
            return
        if getattr(accelerator.Stream, "one_queue", False):
            return  # claimed of one queue too (Metal's), whose calls may return before their work is done
        require_page_locked(accelerator)
        source = accelerator.pin_memory(torch.ones(16 * _LARGE))
        here = torch.empty(16 * _LARGE, device=accelerator.device())
        done = accelerator.Event()
        keeps_busy(accelerator)
        here.copy_(source, non_blocking=True)
        done.record()
        over = done.query()
        accelerator.synchronize()
        said = "is_synchronized_device() is True: work is done when a call returns"
        require(
            over,
            f"{said}, and after copy_(non_blocking=True) an event's query() gave {over!r}",
        )

    def test_stream_is_current_inside(self, accelerator: Accelerator) -> None:
        """`stream(s)` makes it current, with its device, and restores what was before, an error or not."""
        before, side = accelerator.current_stream(), accelerator.Stream()
        with accelerator.stream(side):
            inside = accelerator.current_stream()
        now = accelerator.current_stream()
        require(
            now == before,
            f"after stream(s) current_stream() gave {now}; expected {before}",
        )
        try:
            with accelerator.stream(side):
                raise KeyError
        except KeyError:
            pass
        now = accelerator.current_stream()
        require(
            now == before,
            f"after an error in stream(s) current_stream() gave {now}; expected {before}",
        )
        require(
            inside == side,
            f"inside stream(s) current_stream() gave {inside}; expected s, {side}",
        )
        hashes = hash(inside), hash(side)
        require(
            hashes[0] == hashes[1],
            f"two objects of one stream are equal and have the hashes {hashes}",
        )
        last, selected = accelerator.device_count() - 1, accelerator.current_device()
        other = accelerator.Stream(device=accelerator.device(last))
        if accelerator.device(last) == accelerator.device(0) or getattr(
            other, "one_queue", False
        ):
            return  # every stream is the current one
        ours, theirs = (
            [
                accelerator.default_stream(i),
                *(accelerator.Stream(device=accelerator.device(i)) for _ in "1234"),
            ]
            for i in (0, last)
        )
        module: Any = getattr(torch, accelerator.device_type, None)
        if hasattr(module, "default_stream"):  # else the current one stands for it
            usual = accelerator.default_stream()
            with accelerator.stream(side):
                found = accelerator.default_stream()
            require(
                found == usual,
                f"inside stream(s) default_stream() gave {found}; expected {usual}",
            )
        same = [f"{one} and {two}" for one in ours for two in theirs if one == two]
        require(not same, f"streams of two devices are equal: {', '.join(same)}")
        with accelerator.stream(other):
            there = accelerator.current_device()
        require(
            there == last,
            f"inside the stream of device {last} current_device() gave {there}",
        )
        back = accelerator.current_device()
        require(
            back == selected,
            f"after the stream of another device current_device() gave {back}",
        )

    def test_set_stream_stays(self, accelerator: Accelerator) -> None:
        """`set_stream(s)` makes it current until another one is set."""
        before, side = accelerator.current_stream(), accelerator.Stream()
        try:
            accelerator.set_stream(side)
            inside = accelerator.current_stream()
        finally:
            accelerator.set_stream(before)
        require(inside == side, "the current stream after set_stream(s) is not s")
        require(
            accelerator.current_stream() == before,
            "the current stream was not set back",
        )
        last = accelerator.device_count() - 1
        if accelerator.device(last) == accelerator.device(0) or getattr(
            side, "one_queue", False
        ):
            return
        usual, other = (
            accelerator.current_stream(last),
            accelerator.Stream(device=accelerator.device(last)),
        )
        try:
            accelerator.set_stream(other)
            found = accelerator.current_stream(last)
        finally:
            accelerator.set_stream(usual)
            accelerator.set_device(0)
        require(
            found == other,
            f"after set_stream(s), s of device {last}, current_stream({last}) is {found}; expected {other}",
        )
        require(
            accelerator.current_stream() == before,
            f"set_stream(s), s of device {last}, changed device 0's",
        )

    def test_events_tell_time(self, accelerator: Accelerator) -> None:
        """`elapsed_time` is the milliseconds of the work between two events, and never negative."""
        start, end = (
            accelerator.Event(enable_timing=True),
            accelerator.Event(enable_timing=True),
        )
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
        require(
            type(took) is float,
            f"elapsed_time gave {took!r}; expected a float of milliseconds",
        )
        time.sleep(0.02)  # which is not the work's
        again = start.elapsed_time(end)
        require(
            again == took,
            f"elapsed_time gave {took}, and {again} for the same events a moment later",
        )
        # As long as the host saw at most; a unit of seconds would be a thousandth, of microseconds more.
        require(
            wall / 200 <= took <= wall * 1.5 + 1,
            f"elapsed_time gave {took:.4f} for what took the host {wall:.4f} ms",
        )
        self._times_the_work(accelerator, start, end)

    def _times_the_work(self, accelerator: Accelerator, start: Any, end: Any) -> None:
        """Require the time of the work, not of its launch, and parts of milliseconds."""
        sleep = sleeper(accelerator)
        if sleep is None:
            return
        told = []
        with accelerator.stream(accelerator.Stream()):
            for milliseconds in (3.3, 3.7, 50):
                start.record()
                sleep(milliseconds)
                end.record()
                end.synchronize()
                told.append(start.elapsed_time(end))
        said = f"elapsed_time of work of about 3, 4 and 50 ms on a stream gave {told}"
        require(
            told[-1] > 25,
            f"{said}; expected about that: the launch's time is not the work's",
        )
        require(
            any(took % 1 for took in told),
            f"{said}; expected parts of milliseconds too",
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
        require(
            event.query() is True,
            "after synchronize() query() of an event on another stream gave False; True",
        )
        long_work_is_waited_for(accelerator)
        questions_do_not_wait(accelerator)

    def test_graph_replays_with_new_inputs(self, accelerator: Accelerator) -> None:
        """A replayed graph computes with its inputs' present values; after `reset_graph` it captures anew;
        without graphs, the work runs.
        """
        once = torch.zeros(2, device=accelerator.device())
        with accelerator.capture_to_graph(None):
            once.add_(1)
        for member in (
            "replay_graph",
            "instantiate_graph",
            "reset_graph",
            "enable_graph_debug_mode",
        ):
            getattr(accelerator, member)(None)
        accelerator.debug_dump_graph(None, "no file")
        require(
            once.tolist() == [1.0, 1.0],
            f"without a graph the block runs, once: {once.tolist()}",
        )
        graph = accelerator.create_graph()
        claimed = accelerator.supports_graphs()
        require(
            (graph is not None) is claimed,
            f"supports_graphs() gave {claimed}, create_graph() {graph!r}",
        )
        if claimed:
            what = "create_graph(no_such_option=True)"
            refused(
                lambda: accelerator.create_graph(no_such_option=True),
                UnsupportedError,
                what,
            )
        given = torch.zeros(8, device=accelerator.device())
        out = torch.zeros(8, device=accelerator.device())
        warm = (
            given * 2
        )  # what is compiled or allocated at the first use is not captured
        del warm
        accelerator.synchronize()
        with accelerator.capture_to_graph(graph):
            out.copy_(given * 2 + 1)
        accelerator.synchronize()
        if not claimed:
            require(
                out.tolist() == [1.0] * 8,
                f"without graphs the block runs, once: {out.tolist()}",
            )
            not_claimed("the device has no graphs")
        replays_in_order(accelerator)
        for value in (3.0, 5.0):
            given.fill_(value)
            accelerator.replay_graph(graph)
            accelerator.synchronize()
            expected = [value * 2 + 1] * 8
            require(
                out.tolist() == expected,
                f"capture_to_graph(g) of out.copy_(x * 2 + 1), x.fill_({value:g}), replay_graph(g): out "
                f"is {out.tolist()}; expected {expected}",
            )
        try:
            accelerator.reset_graph(graph)
        except UnsupportedError:  # the vendor's class holds one capture for good
            return
        with accelerator.capture_to_graph(graph):
            out.copy_(given * 2)
        given.fill_(9.0)
        accelerator.replay_graph(graph)
        accelerator.synchronize()
        require(
            out.tolist() == [18.0] * 8,
            "reset_graph(g), capture_to_graph(g) of out.copy_(x * 2), x.fill_(9), replay_graph(g): out "
            f"is {out.tolist()}; expected {[18.0] * 8}",
        )

    def test_captures_leave_all_as_before(self, accelerator: Accelerator) -> None:
        """A capture is on the given stream and restores the one before; its errors come out; each graph is
        its own.
        """
        if not accelerator.supports_graphs():
            not_claimed("the device has no graphs")
        usual, side = accelerator.current_stream(), accelerator.Stream()
        outs = [torch.zeros(2, device=accelerator.device()) for _ in range(2)]
        graphs = [accelerator.create_graph() for _ in outs]
        accelerator.synchronize()
        for value, (graph, out) in enumerate(zip(graphs, outs, strict=True), 1):
            with accelerator.capture_to_graph(graph, stream=side):
                inside = accelerator.current_stream()
                out.add_(value)
            require(
                inside == side,
                "inside capture_to_graph(g, stream=s) the current stream is not s",
            )
            back = accelerator.current_stream()
            require(
                back == usual,
                f"after capture_to_graph(g, stream=s) the current stream is {back}",
            )
        accelerator.synchronize()
        before = [out.tolist() for out in outs]
        ran = any(map(any, before))
        require(
            not ran,
            f"two captures of add_ to zeros left {before}; expected zeros until a graph is replayed",
        )
        accelerator.replay_graph(graphs[1])
        accelerator.synchronize()
        changed = [
            round(out.tolist()[0] - was[0])
            for out, was in zip(outs, before, strict=True)
        ]
        require(
            changed == [0, 2],
            f"replaying the second of two graphs adds {changed} to their outputs; [0, 2]",
        )
        came = False
        try:
            with accelerator.capture_to_graph(accelerator.create_graph(), stream=side):
                raise KeyError
        except KeyError:
            came = True
        require(
            came,
            "an error raised inside capture_to_graph(g) did not come out of the block",
        )
        back = accelerator.current_stream()
        require(
            back == usual,
            f"after an error in capture_to_graph(g, stream=s) the current stream is {back}",
        )
        total = (torch.ones(4, device=accelerator.device()) * 2).sum().item()
        require(
            total == 8, f"after an error in a capture a sum of four twos is {total}"
        )

    def test_capturing_is_told(self, accelerator: Accelerator) -> None:
        """`is_current_stream_capturing` is True inside a capture and False outside one."""
        asked, told = (
            accelerator.is_current_stream_capturing,
            "is_current_stream_capturing() gave",
        )
        require(
            asked() is False, f"{told} {asked()!r} outside a capture; expected False"
        )
        if not accelerator.supports_graphs():
            not_claimed("the device has no graphs")
        graph, out = (
            accelerator.create_graph(),
            torch.zeros(1, device=accelerator.device()),
        )
        aside = accelerator.Stream()
        with accelerator.capture_to_graph(graph):
            inside = asked()
            with accelerator.stream(aside):
                elsewhere = asked()
            out.add_(1)
        one_queue = getattr(aside, "one_queue", False)
        said = (
            "inside capture_to_graph(g), with a stream current that takes no part in it"
        )
        require(
            elsewhere is False or one_queue,
            f"{told} {elsewhere!r} {said}; expected False",
        )
        again = accelerator.create_graph()
        try:
            with accelerator.capture_to_graph(again):
                raise KeyError
        except KeyError:
            pass
        said = "after an error inside capture_to_graph(g)"
        require(
            asked() is False,
            f"{told} {asked()!r} {said}; expected False: the capture goes on",
        )
        require(
            inside is True,
            f"{told} {inside!r} inside capture_to_graph(g); expected True",
        )
