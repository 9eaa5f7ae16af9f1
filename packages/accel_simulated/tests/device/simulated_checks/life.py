"""What a simulated device can do by itself: torch's API where it serves every device, else the vendor's.

What every accelerator promises (memory, random numbers, streams, autocast) is told by its score card.
"""

import importlib

import torch
from torch.utils.data import DataLoader, TensorDataset

from accel_simulated import VENDORS, device
from simulated_checks import Checks

acc = torch.accelerator
CHECKS = Checks()
#: What Metal has instead of these: one queue, memory that both share, no graphs.
METAL = Checks()
OF_STREAMS = "streams_free_what_was_recorded_on_them"
#: What a device does not have: a copy on Gaudi is ordered across its streams, so that none goes on by itself.
BEYOND = {
    "mps": (OF_STREAMS, "graphs", "graph_joins_streams", "graph_of_training"),
    "hpu": (OF_STREAMS,),
}


def run_all(vendor):
    """The problem of each check of this module and of `networks`, by name."""
    importlib.import_module(VENDORS[vendor].package)
    from simulated_checks import networks

    checks = Checks({**CHECKS, **networks.CHECKS, **(METAL if vendor == "mps" else {})})
    for name in BEYOND.get(vendor, ()):
        del checks[name]
    return checks.run(vendor)


def fails(kind, call, words=""):
    try:
        call()
    except kind as error:
        assert words in str(error), f"{words!r} is not in {error}"
    else:
        raise AssertionError(f"no {kind}")


@CHECKS.add
def devices_do_not_mix(vendor):
    others = [
        torch.ones(2),
        *(torch.ones(2, device=f"{vendor}:1") for _ in range(acc.device_count() - 1)),
    ]
    for other in others:
        fails(
            RuntimeError,
            lambda other=other: torch.ones(2, device=vendor) + other,
            "same device",
        )


@CHECKS.add
def streams_free_what_was_recorded_on_them(vendor):
    side = torch.Stream(device=vendor)
    given, target = torch.ones(1000, device=vendor), torch.zeros(1000, device=vendor)
    with device.held(side):
        with side:
            target.copy_(given, non_blocking=True)
        given.record_stream(side)
        del given  # the copy is the last to hold it: it goes on the stream's own thread
    side.synchronize()
    assert target.sum().item() == 1000


@METAL.add
def one_queue(vendor):
    """As torch 2.13 has it: include/ATen/mps/MPSGuardImpl.h, native_functions.yaml."""
    side = torch.Stream(device=vendor)
    assert side == acc.current_stream()
    with device.held(), side:
        event = side.record_event()
        assert not event.query()
    event.synchronize()
    fails(RuntimeError, side.query, "querying streams")
    fails(RuntimeError, side.synchronize, "synchronizing streams")
    fails(
        NotImplementedError,
        lambda: torch.ones(1, device=vendor).record_stream(side),
        "record_stream",
    )
    fails(RuntimeError, acc.Graph, "not supported")
    lacking = (
        "Stream",
        "stream",
        "current_device",
        "is_initialized",
        "max_memory_allocated",
        "memory_stats",
    )
    assert not [name for name in lacking if hasattr(torch.mps, name)]


@METAL.add
def no_float64(vendor):
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
def nothing_is_pinned(vendor):
    """torch's allocator gives what is on the device (pytorch#181374), and its DataLoader does not ask it."""
    fails(RuntimeError, torch.ones(2).pin_memory, "different device")
    assert torch.empty(2, pin_memory=True).device.type == vendor
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, pin_memory=True)
    assert not any(batch.is_pinned() for (batch,) in loader)
