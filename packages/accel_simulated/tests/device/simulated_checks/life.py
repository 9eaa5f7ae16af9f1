"""What a simulated device can do by itself: torch's API where it serves every device, else the vendor's.

What every accelerator promises (memory, random numbers, events, autocast) is told by its score card.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from accel_simulated import VENDORS, device
from simulated_checks import Checks

acc = torch.accelerator
CHECKS = Checks()
#: What Metal has instead of these: one queue, memory that both share, no graphs.
METAL = Checks()
BEYOND_METAL = (
    "streams_run_late", "streams_free_what_was_recorded_on_them", "graphs", "graph_joins_streams",
    "graph_of_training",
)  # fmt: skip


def run_all(vendor: str) -> dict[str, str]:
    """The problem of each check of this module and of `networks`, by name."""
    importlib.import_module(VENDORS[vendor].package)
    from simulated_checks import networks

    checks = Checks({**CHECKS, **networks.CHECKS, **(METAL if vendor == "mps" else {})})
    for name in BEYOND_METAL if vendor == "mps" else ():
        del checks[name]
    return checks.run(vendor)


def fails(
    kind: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], Any], words: str = ""
) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error}"
    else:
        raise AssertionError(f"no {kind}")


@CHECKS.add
def devices(vendor: str) -> None:
    count = VENDORS[vendor].devices
    assert acc.device_count() == count
    assert acc.current_accelerator() == torch.device(vendor)
    for index in range(count):
        tensor = torch.arange(6.0, device=f"{vendor}:{index}").reshape(2, 3)
        assert tensor.device == torch.device(vendor, index)
        assert torch.equal(
            (tensor.t() @ tensor).cpu(), torch.arange(6.0).view(2, 3).t() @ torch.arange(6.0).view(2, 3)
        )
    fails(RuntimeError, lambda: torch.empty(1, device=f"{vendor}:{count}"), "ordinal")
    fails(RuntimeError, lambda: torch.ones(2, device=vendor) + torch.ones(2), "same device")
    if count == 1:
        return
    fails(
        RuntimeError,
        lambda: torch.ones(2, device=f"{vendor}:0") + torch.ones(2, device=f"{vendor}:1"),
        "same device",
    )
    moved = torch.ones(3, device=f"{vendor}:0").to(f"{vendor}:1")
    assert moved.device.index == 1
    assert moved.sum().item() == 3
    acc.set_device_index(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(acc.current_device_index()))
    thread.start()
    thread.join()
    assert torch.empty(1, device=vendor).device.index == 1
    acc.set_device_index(0)
    assert seen == [0], "the current device is a thread's own"


@CHECKS.add
def streams_run_late(vendor: str) -> None:
    source = torch.full((1000,), 7.0).pin_memory()
    target = torch.zeros(1000, device=vendor)
    side = torch.Stream(device=vendor)
    default = acc.current_stream()
    with device.held(side):
        with side:
            assert acc.current_stream() == side
            target.copy_(source, non_blocking=True)
            copied = side.record_event()
        assert acc.current_stream() == default
        assert not side.query()
        assert target.sum().item() == 0, "without waiting, the old values are read"
        default.wait_event(copied)
        assert not default.query(), "the waiting stream is held up too"
    assert target.sum().item() == 7000, "having waited, the new ones"
    side.synchronize()
    assert side.query()
    host = torch.zeros(1000).pin_memory()
    with device.held():
        host.copy_(target, non_blocking=True)
        assert host.sum() == 0, "the host does not wait either"
    acc.synchronize()
    assert host.sum() == 7000


@CHECKS.add
def streams_free_what_was_recorded_on_them(vendor: str) -> None:
    side = torch.Stream(device=vendor)
    given, target = torch.ones(1000, device=vendor), torch.zeros(1000, device=vendor)
    with device.held(side):
        with side:
            target.copy_(given, non_blocking=True)
        given.record_stream(side)
        del given  # the copy is the last to hold it: it goes on the stream's own thread
    side.synchronize()
    assert target.sum().item() == 1000


@CHECKS.add
def threads(vendor: str) -> None:
    """Two threads at work do not disturb one another, and nothing hangs."""
    results: list[float] = []

    def work(value: float) -> None:
        with torch.Stream(device=vendor):
            results.append((torch.full((100,), value, device=vendor) * 2).sum().item())

    threads = [threading.Thread(target=work, args=(float(value),)) for value in range(8)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(results) == [200.0 * value for value in range(8)]
    assert time.monotonic() - started < 10


@METAL.add
def one_queue(vendor: str) -> None:
    """As torch 2.13 has it: include/ATen/mps/MPSGuardImpl.h, native_functions.yaml."""
    side = torch.Stream(device=vendor)
    assert side == acc.current_stream()
    with device.held(), side:
        event = side.record_event()
        assert not event.query()
    event.synchronize()
    fails(RuntimeError, side.query, "querying streams")
    fails(RuntimeError, side.synchronize, "synchronizing streams")
    fails(NotImplementedError, lambda: torch.ones(1, device=vendor).record_stream(side), "record_stream")
    fails(RuntimeError, acc.Graph, "not supported")
    lacking = ("Stream", "stream", "current_device", "is_initialized", "max_memory_allocated", "memory_stats")
    assert not [name for name in lacking if hasattr(torch.mps, name)]


@METAL.add
def no_float64(vendor: str) -> None:
    """By whatever way a tensor comes to the device: pytorch, aten/src/ATen/mps/EmptyTensor.cpp."""
    here, host = torch.ones(2, device=vendor), torch.ones(2, dtype=torch.float64)
    ways = (
        lambda: torch.zeros(2, dtype=torch.float64, device=vendor),
        lambda: torch.tensor([1.0], dtype=torch.float64, device=vendor),
        lambda: host.to(vendor),
        here.double,
        lambda: here + host.to(vendor),
        lambda: here.sum(dtype=torch.float64),
    )
    for way in ways:
        fails(TypeError, way, "float64")
    assert host.to(vendor, torch.float32).sum().item() == 2


@METAL.add
def nothing_is_page_locked(vendor: str) -> None:
    """torch's allocator gives what is on the device (pytorch#181374), and its DataLoader does not ask it."""
    fails(RuntimeError, torch.ones(2).pin_memory, "different device")
    assert torch.empty(2, pin_memory=True).device.type == vendor
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, pin_memory=True)
    assert not any(batch.is_pinned() for (batch,) in loader)
