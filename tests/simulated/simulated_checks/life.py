"""What a simulated device can do by itself: torch's API where it serves every device, else the vendor's."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from torch.utils.data import DataLoader, TensorDataset

from accel_simulated import VENDORS, device
from simulated_checks import Checks

acc = torch.accelerator
CHECKS = Checks()
#: What Metal has instead of these: one queue, memory that both share, no graphs.
METAL = Checks()
BEYOND_METAL = (
    "streams_run_late", "streams_free_what_was_recorded_on_them", "pinned_memory", "graphs",
    "graph_joins_streams", "graph_of_training",
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
def vendor_streams(vendor: str) -> None:
    module = getattr(torch, vendor)
    if not hasattr(module, "Stream"):
        return
    before = module.current_stream()
    side = module.Stream()
    with device.held(side):
        with module.stream(side):
            assert module.current_stream() == side
            event = module.Event()
            event.record()
        assert module.current_stream() == before
        assert not event.query()
        before.wait_event(event)
        before.wait_stream(side)
        assert not before.query()
    before.synchronize()
    assert event.query()
    with module.stream(None):
        assert module.current_stream() == before


@CHECKS.add
def events(vendor: str) -> None:
    module = getattr(torch, vendor)
    kind = getattr(module, "Event", lambda enable_timing: torch.Event(vendor, enable_timing=enable_timing))
    start, end = kind(enable_timing=True), kind(enable_timing=True)
    start.record()
    device.sleep(50)
    with device.held():
        end.record()
        assert not end.query()
    end.synchronize()
    assert end.query()
    assert 45 < start.elapsed_time(end) < 5000
    plain = kind(enable_timing=False)
    plain.record()
    plain.synchronize()
    fails((RuntimeError, ValueError), lambda: start.elapsed_time(plain))


@CHECKS.add
def memory(vendor: str) -> None:
    acc.empty_cache()
    acc.reset_peak_memory_stats()
    before = acc.memory_allocated()
    tensor = torch.empty(1 << 20, dtype=torch.uint8, device=vendor)
    assert acc.memory_allocated() == before + (1 << 20)
    del tensor
    assert acc.memory_allocated() == before
    assert acc.max_memory_allocated() == before + (1 << 20)
    assert acc.memory_reserved() >= 1 << 20
    acc.empty_cache()
    free, total = acc.get_memory_info()
    assert total == device.memory
    assert free == total - acc.memory_reserved()
    acc.reset_peak_memory_stats()
    assert acc.max_memory_allocated() == before
    ooms = acc.memory_stats()["num_ooms"]
    fails(
        torch.OutOfMemoryError,
        lambda: torch.empty(total + 1, dtype=torch.uint8, device=vendor),
        "out of memory",
    )
    assert acc.memory_stats()["num_ooms"] == ooms + 1
    torch.empty(total // 2, dtype=torch.uint8, device=vendor)  # and it goes on


@CHECKS.add
def random_numbers(vendor: str) -> None:
    module = getattr(torch, vendor)
    torch.manual_seed(11)
    first = torch.randn(5, device=vendor).cpu()
    second = torch.randn(5, device=vendor).cpu()
    assert not torch.equal(first, second)
    if vendor != "hpu":  # torch.manual_seed does not know hpu
        torch.manual_seed(11)
        assert torch.equal(torch.randn(5, device=vendor).cpu(), first)
    state = module.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    drawn = nn.functional.dropout(torch.ones(100, device=vendor)).cpu()
    module.set_rng_state(state)
    assert torch.equal(nn.functional.dropout(torch.ones(100, device=vendor)).cpu(), drawn)
    generator = torch.Generator(device=vendor).manual_seed(5)
    one = torch.rand(4, device=vendor, generator=generator).cpu()
    assert torch.equal(torch.rand(4, device=vendor, generator=generator.manual_seed(5)).cpu(), one)
    host = torch.get_rng_state()
    torch.rand(3, device=vendor)
    assert torch.equal(host, torch.get_rng_state()), "the host's generator is left alone"


@CHECKS.add
def checkpoint_keeps_random_numbers(vendor: str) -> None:
    if vendor == "mps":
        return  # torch.utils.checkpoint looks for `_initialized`, which torch.mps has not
    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).to(vendor)
    outputs = []

    def run(x: torch.Tensor) -> torch.Tensor:
        outputs.append(layer(x))
        return outputs[-1]

    with set_checkpoint_early_stop(False):
        checkpoint(
            run, torch.ones(4, 8, device=vendor, requires_grad=True), use_reentrant=False
        ).sum().backward()
    assert len(outputs) == 2
    assert torch.equal(outputs[0].cpu(), outputs[1].cpu()), "the same mask, forwards and when computed again"


@CHECKS.add
def pinned_memory(vendor: str) -> None:
    plain = torch.arange(10.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned()
    assert not plain.is_pinned()
    assert torch.equal(pinned, plain)
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, pin_memory=True)
    assert all(batch.is_pinned() for (batch,) in loader)


@CHECKS.add
def autocast(vendor: str) -> None:
    a, b = torch.randn(4, 4, device=vendor), torch.randn(4, 4, device=vendor)
    with torch.autocast(vendor, dtype=torch.bfloat16):
        product = a @ b
        assert product.dtype == torch.bfloat16
        assert nn.functional.mse_loss(product, b).dtype == torch.float32 or vendor == "mps"
    assert (a @ b).dtype == torch.float32


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
