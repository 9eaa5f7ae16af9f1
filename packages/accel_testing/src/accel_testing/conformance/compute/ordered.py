"""Order of work on streams: as each wait says, of memory that two streams use, and of replayed graphs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from threading import Thread
from typing import Any

import torch

from accel_core import Accelerator
from accel_testing.conformance.claims import require

__all__ = [
    "keeps_busy",
    "long_work_is_waited_for",
    "memory_waits_for_streams",
    "questions_do_not_wait",
    "replays_in_order",
    "sleeper",
    "waits_across_devices",
    "waits_as_told",
]

_SIZE = 1 << 16
_LARGE = 1 << 20
#: Seconds beside which it does not count that a busy host is late.
_MEASURED = 0.05


def keeps_busy(accelerator: Accelerator) -> None:
    """Give the current stream so much work that what is queued next runs late."""
    product = torch.full((384, 384), 1e-3, device=accelerator.device())
    for _ in range(8):
        product = product @ product


def sleeper(accelerator: Accelerator) -> Callable[[float], None] | None:
    """Return what keeps the current stream busy for some milliseconds, or `None` where torch has no such.

    `torch.cuda._sleep` takes cycles of the device, whose length is measured here.
    """
    sleep = getattr(getattr(torch, accelerator.device_type, None), "_sleep", None)
    if sleep is None:
        return None
    try:
        sleep(1)
        accelerator.synchronize()
    except Exception:
        return None  # it is no kernel of this device's

    def seconds(cycles: int) -> float:
        """Return the shortest of five; a busy host may be late to see that it is done."""
        shortest = float("inf")
        for _ in range(5):
            accelerator.synchronize()
            began = time.perf_counter()
            sleep(cycles)
            accelerator.synchronize()
            shortest = min(shortest, time.perf_counter() - began)
            if shortest < _MEASURED:
                break
        return shortest

    cycles, took = 1 << 20, 0.0
    while took < _MEASURED and cycles < 1 << 36:
        cycles *= 2
        took = seconds(cycles)
    return lambda milliseconds: sleep(int(cycles * milliseconds / (took * 1e3)))


def long_work_is_waited_for(accelerator: Accelerator) -> None:
    """Require of each wait, and of a stream of another thread, that work of a quarter of a second is done."""
    sleep = sleeper(accelerator)
    side = accelerator.Stream()
    if sleep is None or getattr(side, "one_queue", False):
        return
    done = accelerator.Event()

    def work(on: Any = side) -> None:
        with accelerator.stream(on):
            sleep(250)
            done.record()

    def work_in_a_thread() -> None:
        thread = Thread(
            target=lambda: work(accelerator.Stream(device=accelerator.device(0)))
        )
        thread.start()
        thread.join()

    ways: dict[str, tuple[Callable[[], None], Callable[[], Any]]] = {
        "e.synchronize()": (work, done.synchronize),
        "s.synchronize()": (work, side.synchronize),
        "synchronize()": (work, accelerator.synchronize),
        "synchronize(), s being made and used by another thread": (
            work_in_a_thread,
            accelerator.synchronize,
        ),
    }
    for way, (begin, wait) in ways.items():
        begin()
        wait()
        over = done.query()
        done.synchronize()
        require(
            over is True,
            f"250 ms of work, then e, on a stream s: after {way} e.query() gave {over!r}",
        )


def questions_do_not_wait(accelerator: Accelerator) -> None:
    """Require that what only asks or selects returns while work runs that was queued before."""
    sleep = sleeper(accelerator)
    if sleep is None or getattr(accelerator.Stream(), "one_queue", False):
        return
    done, side, other = (
        accelerator.Event(),
        accelerator.Stream(),
        accelerator.device_count() - 1,
    )

    def select() -> None:
        accelerator.set_device(other)
        accelerator.set_device(0)

    def guard() -> None:
        with accelerator.device_guard(other):
            pass

    def switch() -> None:
        with accelerator.stream(side):
            pass

    asked: dict[str, Callable[[], object]] = {
        f"set_device({other}), set_device(0)": select,
        f"a block of device_guard({other})": guard,
        "a block of stream(s)": switch,
        "Event().record()": lambda: accelerator.Event().record(),
        "s.wait_stream(current_stream())": lambda: side.wait_stream(accelerator.current_stream()),
        **{
            f"{name}()": getattr(accelerator, name)
            for name in (
                "current_device", "current_stream", "default_stream", "memory_allocated", "memory_reserved",
                "max_memory_allocated", "memory_stats", "is_current_stream_capturing",
            )
        },
    }  # fmt: skip
    for ask in asked.values():
        ask()  # the first call may start what is waited for

    def waited(ask: Callable[[], object], stream: Any) -> bool:
        for milliseconds in (
            50,
            100,
            200,
            400,
        ):  # on a busy host the call itself may be late
            accelerator.synchronize()
            with accelerator.stream(stream):
                sleep(milliseconds)
                done.record()
            ask()
            if done.query() is False:
                return False
        return True

    begun = "50 to 400 ms of work and e on"
    for stream, name in (
        (accelerator.current_stream(), "the current stream"),
        (side, "s"),
    ):
        said = f"{begun} {name}, in a block of stream(…): e is done after the block, so this has waited"
        require(not waited(lambda: None, stream), said)
        for what, ask in asked.items():
            require(
                not waited(ask, stream),
                f"{begun} {name}, then {what}: e is done, so this has waited",
            )
    accelerator.synchronize()


def waits_as_told(accelerator: Accelerator) -> None:
    """Require of each wait that it holds for the stream that it names; by default for the current one."""
    writer, reader, third = (accelerator.Stream() for _ in range(3))

    def recorded() -> Any:
        """Record an event on the writer while it is the current stream."""
        done = accelerator.Event()
        with accelerator.stream(writer):
            done.record()
        return done

    def record_on_writer() -> Any:
        done = accelerator.Event()
        done.record(writer)
        return done

    def waited_by_default() -> None:
        done = recorded()
        with accelerator.stream(reader):
            done.wait()

    def recorded_by_stream() -> None:
        writer.record_event(early[0])
        reader.wait_event(early[0])

    def recorded_again() -> None:
        early[0].record(writer)
        early[0].wait(reader)

    # The last three record an event that was recorded before the writer had its work.
    early: list[Any] = []
    ways: dict[str, Callable[[], Any]] = {
        "r.wait_stream(w)": lambda: reader.wait_stream(writer),
        "e.record() on w, r.wait_event(e)": lambda: reader.wait_event(recorded()),
        "e.record() on w, e.wait(r)": lambda: recorded().wait(reader),
        "e.record() on w, e.wait() on r": waited_by_default,
        "e.record(w), r.wait_event(e)": lambda: reader.wait_event(record_on_writer()),
        "r.wait_event(w.record_event())": lambda: reader.wait_event(
            writer.record_event()
        ),
        "w.record_event(e), r.wait_event(e)": recorded_by_stream,
        "what w.record_event(e) gave, r.wait_event of it": lambda: reader.wait_event(
            writer.record_event(early[0])
        ),
        "e.record(w) of one recorded before, e.wait(r)": recorded_again,
    }
    for way, wait in ways.items():
        total = torch.zeros(_SIZE, device=accelerator.device())
        accelerator.synchronize()
        early[:] = [recorded()]
        with accelerator.stream(writer):
            keeps_busy(accelerator)
            total += 1
        with accelerator.stream(third):
            wait()
        with accelerator.stream(reader):
            seen = (total * 2).sum()
        reader.synchronize()
        found = seen.item()
        accelerator.synchronize()
        require(
            found == 2 * _SIZE,
            f"a stream w writes {_SIZE} ones, then, while a third stream is the current one, {way}, then the "
            f"stream r adds up their doubles: {found:g}; expected {2 * _SIZE}",
        )


def waits_across_devices(accelerator: Accelerator, busy: Any) -> None:
    """Require that a stream of the first device waits for an event on `busy`, a stream of another device.

    The pause is for runtimes that hand each device its work from a thread of its own, as torch_npu 2.13 does:
    without it the wait may come before the record.
    """
    sleep = sleeper(accelerator)
    if sleep is None:
        return
    reader = accelerator.Stream(device=accelerator.device(0))
    accelerator.synchronize()
    with accelerator.stream(busy):
        sleep(250)
        done = busy.record_event()
    time.sleep(0.02)
    reader.wait_event(done)
    reader.synchronize()
    over = done.query()
    busy.synchronize()
    require(
        over is True,
        f"s is a busy stream of {busy.device} and e is recorded on it; r is a stream of {reader.device}; "
        f"after r.wait_event(e) and r.synchronize() e.query() gave {over!r}; expected True",
    )


def memory_waits_for_streams(accelerator: Accelerator) -> None:
    """Require that a new tensor gets memory only after the streams that `record_stream` named are done."""
    side, now = accelerator.Stream(), accelerator.current_stream()
    place = accelerator.device()
    numbers = torch.arange(float(_LARGE), device=place)
    try:
        torch.empty(1, device=place).record_stream(side)
    except NotImplementedError:
        return
    for writes in (False, True):
        accelerator.synchronize()
        accelerator.empty_cache()
        result = torch.zeros(_LARGE, device=place)
        tensor = numbers.clone()
        side.wait_stream(now)
        with accelerator.stream(side):
            keeps_busy(accelerator)
            result.copy_(tensor, non_blocking=True)
            if writes:
                tensor.fill_(7.0)
        tensor.record_stream(side)
        del tensor
        new = [torch.empty(_LARGE, device=place) for _ in range(3)]
        for each in new:
            each.fill_(-1.0)
        seen = [each.sum().item() for each in new]
        side.synchronize()
        wrong = int((result != numbers).sum().item())
        after = [each.sum().item() for each in new]
        what = (
            f"a stream s, which is busy, copies a tensor of {_LARGE} numbers"
            + (", then fills it with 7" if writes else "")
            + "; record_stream(s), del of the tensor, three new tensors of that size filled with -1 on the "
            "current stream"
        )
        require(
            wrong == 0,
            f"{what}: {wrong} numbers of the copy are wrong; expected 0. The memory was given away too early",
        )
        expected = [-float(_LARGE)] * 3
        require(
            seen == expected and after == expected,
            f"{what}: their sums are {seen}, and {after} after s.synchronize(); expected {expected}. The "
            "memory was given away too early",
        )


def replays_in_order(accelerator: Accelerator) -> None:
    """Require that a replay comes after what the current stream was given before it, and before the rest."""
    place = accelerator.device()
    given, out = torch.zeros(_SIZE, device=place), torch.zeros(_SIZE, device=place)
    keeps_busy(
        accelerator
    )  # what is compiled or allocated at the first use is not captured
    warm = (given * 2 + 1) * 1
    accelerator.synchronize()
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        busy = (
            given * 1
        )  # of the operators that other checks capture: not every operator can be
        for _ in range(200):
            busy = busy * 1
        out.copy_(busy * 2 + 1)
    accelerator.synchronize()
    usual, side = accelerator.current_stream(), accelerator.Stream()
    for value, stream in ((3.0, None), (5.0, None), (7.0, side), (9.0, None)):
        (stream or usual).wait_stream(usual if stream else side)
        with accelerator.stream(stream) if stream else nullcontext():
            keeps_busy(accelerator)
            given.fill_(value)
            accelerator.replay_graph(graph)
            seen = out * 1
            given.fill_(-1.0)
            after = out * 1
            accelerator.current_stream().synchronize()
            first, last = (each[[0, -1]].tolist() for each in (seen, after))
        expected = [value * 2 + 1] * 2
        where = (
            "another stream, made the current one," if stream else "the current stream"
        )
        require(
            first == last == expected,
            f"capture_to_graph(g) of long work and out.copy_(x * 2 + 1); on {where} long work, "
            f"x.fill_({value:g}), replay_graph(g), out * 1, x.fill_(-1), out * 1: the first and last numbers "
            f"are {first}, then {last}; expected {expected} both times. A replay must be in the order of the "
            "current stream",
        )
    del warm
