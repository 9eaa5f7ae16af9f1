"""Check the order of work on streams: the effect of each wait, reused memory, and replayed graphs."""

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
    "find_sleep",
    "queue_long_work",
    "require_memory_waits_for_streams",
    "require_queries_do_not_wait",
    "require_replays_in_order",
    "require_waits_across_devices",
    "require_waits_for_long_work",
    "require_waits_on_named_stream",
]

_SIZE = 1 << 16
_LARGE = 1 << 20
#: The duration of work, in seconds, that is long compared with the delays of a busy host.
_MIN_MEASURED_SECONDS = 0.05


def queue_long_work(accelerator: Accelerator) -> None:
    """Queue enough work on the current stream to delay later work noticeably."""
    product = torch.full((384, 384), 1e-3, device=accelerator.device())
    for _ in range(8):
        product = product @ product


def find_sleep(accelerator: Accelerator) -> Callable[[float], None] | None:
    """Return a function that keeps the current stream busy for some milliseconds, or `None` if there is none.

    `torch.cuda._sleep` takes a number of device cycles, whose duration is measured here.
    """
    sleep = getattr(getattr(torch, accelerator.device_type, None), "_sleep", None)
    if sleep is None:
        return None
    try:
        sleep(1)
        accelerator.synchronize()
    except Exception:
        return None  # this device does not have the kernel

    def measure(cycles: int) -> float:
        """Return the shortest of five durations in seconds, because a busy host may notice the end late."""
        shortest = float("inf")
        for _ in range(5):
            accelerator.synchronize()
            began = time.perf_counter()
            sleep(cycles)
            accelerator.synchronize()
            shortest = min(shortest, time.perf_counter() - began)
            if shortest < _MIN_MEASURED_SECONDS:
                break
        return shortest

    cycles = 1 << 20
    duration = 0.0
    while duration < _MIN_MEASURED_SECONDS and cycles < 1 << 36:
        cycles *= 2
        duration = measure(cycles)
    return lambda milliseconds: sleep(int(cycles * milliseconds / (duration * 1e3)))


def require_waits_for_long_work(accelerator: Accelerator) -> None:
    """Require that 250 ms of work are done after each wait, even if another thread queued the work."""
    sleep = find_sleep(accelerator)
    stream = accelerator.Stream()
    if sleep is None or getattr(stream, "one_queue", False):
        return
    event = accelerator.Event()

    def queue_work(on_stream: Any = stream) -> None:
        with accelerator.stream(on_stream):
            sleep(250)
            event.record()

    def queue_work_in_thread() -> None:
        def queue_on_new_stream() -> None:
            queue_work(accelerator.Stream(device=accelerator.device(0)))

        thread = Thread(target=queue_on_new_stream)
        thread.start()
        thread.join()

    waits: dict[str, tuple[Callable[[], None], Callable[[], Any]]] = {
        "e.synchronize()": (queue_work, event.synchronize),
        "s.synchronize()": (queue_work, stream.synchronize),
        "synchronize()": (queue_work, accelerator.synchronize),
        "synchronize(), if another thread created and used s": (
            queue_work_in_thread,
            accelerator.synchronize,
        ),
    }
    for description, (queue, wait) in waits.items():
        queue()
        wait()
        is_done = event.query()
        event.synchronize()
        require(
            is_done is True,
            f"250 ms of work, then e, on a stream s: after {description} e.query() returned {is_done!r}",
        )


def require_queries_do_not_wait(accelerator: Accelerator) -> None:
    """Require that members that only query or select return while earlier work is still running."""
    sleep = find_sleep(accelerator)
    side_stream = accelerator.Stream()
    if sleep is None or getattr(side_stream, "one_queue", False):
        return
    event = accelerator.Event()

    def has_waited(query: Callable[[], object], stream: Any) -> bool:
        """Return whether the work on `stream` is done each time that `query` returns."""
        for milliseconds in (
            50,
            100,
            200,
            400,
        ):  # on a busy host `query` may be delayed
            accelerator.synchronize()
            with accelerator.stream(stream):
                sleep(milliseconds)
                event.record()
            query()
            if event.query() is False:
                return False
        return True

    queries = _queries(accelerator, side_stream)
    for query in queries.values():
        query()  # the first call may initialize something and wait for it
    work = "50 to 400 ms of work and e on"
    for stream, name in (
        (accelerator.current_stream(), "the current stream"),
        (side_stream, "s"),
    ):
        require(
            not has_waited(lambda: None, stream),
            f"{work} {name}, in a block of stream(…): e is done after the block, so this has waited",
        )
        for description, query in queries.items():
            require(
                not has_waited(query, stream),
                f"{work} {name}, then {description}: e is done, so this has waited",
            )
    accelerator.synchronize()


def _queries(accelerator: Accelerator, stream: Any) -> dict[str, Callable[[], object]]:
    """Return calls that must not wait for the device, by description."""
    last = accelerator.device_count() - 1

    def select() -> None:
        accelerator.set_device(last)
        accelerator.set_device(0)

    def guard() -> None:
        with accelerator.device_guard(last):
            pass

    def switch() -> None:
        with accelerator.stream(stream):
            pass

    return {
        f"set_device({last}), set_device(0)": select,
        f"a block of device_guard({last})": guard,
        "a block of stream(s)": switch,
        "Event().record()": lambda: accelerator.Event().record(),
        "s.wait_stream(current_stream())": lambda: stream.wait_stream(accelerator.current_stream()),
        **{
            f"{name}()": getattr(accelerator, name)
            for name in (
                "current_device", "current_stream", "default_stream", "memory_allocated", "memory_reserved",
                "max_memory_allocated", "memory_stats", "is_current_stream_capturing",
            )
        },
    }  # fmt: skip


def require_waits_on_named_stream(accelerator: Accelerator) -> None:
    """Require that each kind of wait affects the named stream, or by default the current stream."""
    writer, reader, other = (accelerator.Stream() for _ in range(3))
    #: An event that is recorded before the writer's work.
    early: list[Any] = []
    waits = _ways_to_wait(accelerator, writer, reader, early)
    for description, wait in waits.items():
        total = torch.zeros(_SIZE, device=accelerator.device())
        accelerator.synchronize()
        early[:] = [_record_on(accelerator, writer)]
        with accelerator.stream(writer):
            queue_long_work(accelerator)
            total += 1
        with accelerator.stream(other):
            wait()
        with accelerator.stream(reader):
            doubled = (total * 2).sum()
        reader.synchronize()
        result = doubled.item()
        accelerator.synchronize()
        require(
            result == 2 * _SIZE,
            f"a stream w writes {_SIZE} ones; then, while a third stream is current, {description}; then the "
            f"stream r doubles and sums the numbers: the sum is {result:g}; expected {2 * _SIZE}",
        )


def _record_on(accelerator: Accelerator, stream: Any) -> Any:
    """Record and return an event while `stream` is the current stream."""
    event = accelerator.Event()
    with accelerator.stream(stream):
        event.record()
    return event


def _ways_to_wait(
    accelerator: Accelerator, writer: Any, reader: Any, early: list[Any]
) -> dict[str, Callable[[], Any]]:
    """Return the ways for `reader` to wait for `writer`; the last three record `early` again."""

    def record_by_argument() -> Any:
        event = accelerator.Event()
        event.record(writer)
        return event

    def wait_on_current_stream() -> None:
        event = _record_on(accelerator, writer)
        with accelerator.stream(reader):
            event.wait()

    def record_by_stream() -> None:
        writer.record_event(early[0])
        reader.wait_event(early[0])

    def record_again() -> None:
        early[0].record(writer)
        early[0].wait(reader)

    return {
        "r.wait_stream(w)": lambda: reader.wait_stream(writer),
        "e.record() on w, r.wait_event(e)": lambda: reader.wait_event(
            _record_on(accelerator, writer)
        ),
        "e.record() on w, e.wait(r)": lambda: _record_on(accelerator, writer).wait(
            reader
        ),
        "e.record() on w, e.wait() on r": wait_on_current_stream,
        "e.record(w), r.wait_event(e)": lambda: reader.wait_event(record_by_argument()),
        "r.wait_event(w.record_event())": lambda: reader.wait_event(
            writer.record_event()
        ),
        "w.record_event(e), r.wait_event(e)": record_by_stream,
        "r.wait_event(w.record_event(e))": lambda: reader.wait_event(
            writer.record_event(early[0])
        ),
        "e.record(w) of one recorded before, e.wait(r)": record_again,
    }


def require_waits_across_devices(accelerator: Accelerator, busy: Any) -> None:
    """Require that a stream of the first device waits for an event on `busy`, a stream of another device.

    The check pauses for runtimes that use a separate thread to submit each device's work, such as torch_npu
    2.13: without a pause, the wait may be submitted before the record.
    """
    sleep = find_sleep(accelerator)
    if sleep is None:
        return
    reader = accelerator.Stream(device=accelerator.device(0))
    accelerator.synchronize()
    with accelerator.stream(busy):
        sleep(250)
        event = busy.record_event()
    time.sleep(0.02)
    reader.wait_event(event)
    reader.synchronize()
    is_done = event.query()
    busy.synchronize()
    require(
        is_done is True,
        f"s is a busy stream of {busy.device} and e is recorded on it; r is a stream of {reader.device}; "
        f"after r.wait_event(e) and r.synchronize() e.query() returned {is_done!r}; expected True",
    )


def require_memory_waits_for_streams(accelerator: Accelerator) -> None:
    """Require that a tensor's memory is not reused before the streams of `record_stream` are done."""
    side_stream = accelerator.Stream()
    try:
        torch.empty(1, device=accelerator.device()).record_stream(side_stream)
    except NotImplementedError:
        return
    for writes in (False, True):
        _require_memory_waits(accelerator, side_stream, writes=writes)


def _require_memory_waits(
    accelerator: Accelerator, side_stream: Any, *, writes: bool
) -> None:
    """Free a tensor that another stream still uses; require that new tensors do not get its memory."""
    device = accelerator.device()
    numbers = torch.arange(float(_LARGE), device=device)
    accelerator.synchronize()
    accelerator.empty_cache()
    copied = torch.zeros(_LARGE, device=device)
    tensor = numbers.clone()
    side_stream.wait_stream(accelerator.current_stream())
    with accelerator.stream(side_stream):
        queue_long_work(accelerator)
        copied.copy_(tensor, non_blocking=True)
        if writes:
            tensor.fill_(7.0)
    tensor.record_stream(side_stream)
    del tensor
    new_tensors = [torch.empty(_LARGE, device=device) for _ in range(3)]
    for new in new_tensors:
        new.fill_(-1.0)
    sums = [new.sum().item() for new in new_tensors]
    side_stream.synchronize()
    wrong = int((copied != numbers).sum().item())
    later_sums = [new.sum().item() for new in new_tensors]
    filling = ", then fills it with 7" if writes else ""
    scenario = (
        f"a busy stream s copies a tensor of {_LARGE} numbers{filling}; after record_stream(s), the tensor "
        "is deleted, and three new tensors of this size are filled with -1 on the current stream"
    )
    require(
        wrong == 0,
        f"{scenario}: {wrong} numbers of the copy are wrong; expected 0. The memory was reused too early",
    )
    expected = [-float(_LARGE)] * 3
    require(
        sums == expected and later_sums == expected,
        f"{scenario}: the sums of the new tensors are {sums}, and {later_sums} after s.synchronize(); "
        f"expected {expected}. The memory was reused too early",
    )


def require_replays_in_order(accelerator: Accelerator) -> None:
    """Require that a replay runs between the earlier and the later work of the current stream."""
    device = accelerator.device()
    input_ = torch.zeros(_SIZE, device=device)
    output = torch.zeros(_SIZE, device=device)
    graph, warm_up = _capture_long_work(accelerator, input_, output)
    usual, side_stream = accelerator.current_stream(), accelerator.Stream()
    for value, stream in ((3.0, usual), (5.0, usual), (7.0, side_stream), (9.0, usual)):
        stream.wait_stream(usual if stream is side_stream else side_stream)
        with accelerator.stream(stream) if stream is side_stream else nullcontext():
            queue_long_work(accelerator)
            input_.fill_(value)
            accelerator.replay_graph(graph)
            copied = output * 1
            input_.fill_(-1.0)
            copied_later = output * 1
            accelerator.current_stream().synchronize()
            ends = copied[[0, -1]].tolist()
            later_ends = copied_later[[0, -1]].tolist()
        expected = [value * 2 + 1] * 2
        where = "the current stream"
        if stream is side_stream:
            where = "another stream, set as the current one,"
        require(
            ends == later_ends == expected,
            f"capture_to_graph(g) of long work and out.copy_(x * 2 + 1); on {where} long work, "
            f"x.fill_({value:g}), replay_graph(g), out * 1, x.fill_(-1), out * 1: the first and last numbers "
            f"are {ends}, then {later_ends}; expected {expected} both times. A replay must be in the order "
            "of the current stream",
        )
    del warm_up


def _capture_long_work(
    accelerator: Accelerator, input_: torch.Tensor, output: torch.Tensor
) -> tuple[Any, torch.Tensor]:
    """Return a graph that computes `output` from `input_`, and a tensor that its replays need."""
    queue_long_work(
        accelerator
    )  # a kernel that is compiled at its first use cannot be captured
    warm_up = (input_ * 2 + 1) * 1
    accelerator.synchronize()
    graph = accelerator.create_graph()
    with accelerator.capture_to_graph(graph):
        # Not every operator can be captured, so only operators that other checks capture are used.
        busy = input_ * 1
        for _ in range(200):
            busy = busy * 1
        output.copy_(busy * 2 + 1)
    accelerator.synchronize()
    return graph, warm_up
