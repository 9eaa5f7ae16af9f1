"""One accelerator a process, and a block's own one, with threads, tasks and contexts."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import accel_core
from accel_core import current


def test_32_threads_racing_get_one_object_and_one_choice(mlu, monkeypatch):
    chosen = []
    real = current.select

    def slow(*args, **options):
        chosen.append(args)
        time.sleep(0.05)
        return real(*args, **options)

    monkeypatch.setattr(current, "select", slow)
    barrier = threading.Barrier(32)

    def ask(_):
        barrier.wait(20)
        return accel_core.get_accelerator(), accel_core.selection()

    with ThreadPoolExecutor(32) as pool:
        got = list(pool.map(ask, range(32)))
    assert len({(id(a), id(s)) for a, s in got}) == 1
    assert len(chosen) == 1


def test_use_is_seen_by_no_other_thread(mlu):
    outer = accel_core.get_accelerator()

    def other():
        before = accel_core.get_accelerator()
        with accel_core.use_accelerator("cpu"):
            return before, accel_core.get_accelerator().name

    with ThreadPoolExecutor(1) as pool, accel_core.use_accelerator("cpu") as cpu:
        assert pool.submit(other).result(10) == (outer, "cpu")
        assert accel_core.get_accelerator() is cpu


def test_use_is_for_one_task(mlu):
    outer = accel_core.get_accelerator()

    async def task(name):
        seen = []
        with accel_core.use_accelerator(name):
            for _ in range(3):
                await asyncio.sleep(0)
                seen.append(accel_core.get_accelerator().name)
        return [*seen, accel_core.get_accelerator().name]

    async def main():
        return await asyncio.gather(*(task(name) for name in ("cpu", "mlu", "cpu")))

    assert asyncio.run(main()) == [
        ["cpu"] * 3 + ["mlu"],
        ["mlu"] * 4,
        ["cpu"] * 3 + ["mlu"],
    ]
    assert current._current_without_overrides is outer


def test_use_that_is_ended_in_another_context_still_ends(mlu):
    """A generator that is closed elsewhere, as some frameworks do."""
    import contextvars

    outer = accel_core.get_accelerator()
    manager = accel_core.use_accelerator("cpu")
    elsewhere = contextvars.copy_context()
    elsewhere.run(manager.__enter__)
    assert elsewhere.run(accel_core.get_accelerator).name == "cpu"
    manager.__exit__(None, None, None)
    assert accel_core.get_accelerator() is outer
    assert elsewhere.run(accel_core.get_accelerator) is outer
    assert current._current_without_overrides is outer


def batches():
    with accel_core.use_accelerator("cpu"):
        yield from range(3)


def test_a_generator_left_by_break_ends_its_block(mlu):
    outer = accel_core.get_accelerator()
    for _ in batches():
        assert (
            accel_core.get_accelerator().name == "cpu"
        )  # its caller's context is its own
        break
    assert accel_core.get_accelerator() is outer


def test_generators_that_end_in_another_order_leave_nothing(mlu):
    outer = accel_core.get_accelerator()
    first, second = batches(), batches()
    next(first)
    next(second)
    first.close()
    assert accel_core.get_accelerator().name == "cpu"
    second.close()
    assert accel_core.get_accelerator() is outer
    assert current._current_without_overrides is outer


def test_an_async_generator_that_is_dropped_ends_its_block(mlu):
    outer = accel_core.get_accelerator()

    async def stream():
        with accel_core.use_accelerator("cpu"):
            for number in range(3):
                yield number

    async def main():
        async for _ in stream():
            break
        for _ in range(5):  # the loop closes it in a task of its own
            await asyncio.sleep(0)
        return accel_core.get_accelerator().name

    assert asyncio.run(main()) == "mlu"
    assert accel_core.get_accelerator() is outer


def test_a_task_has_the_block_it_starts_in_until_that_ends(mlu):
    async def task(ended):
        seen = [accel_core.get_accelerator().name]
        await ended.wait()
        return [*seen, accel_core.get_accelerator().name]

    async def main():
        ended = asyncio.Event()
        with accel_core.use_accelerator("cpu"):
            running = asyncio.create_task(task(ended))
            await asyncio.sleep(0)
        ended.set()
        return await running

    accel_core.get_accelerator()
    assert asyncio.run(main()) == ["cpu", "mlu"]
