"""What a simulated device can do, found by doing it: the rows of docs/evidence/simulated-features.md.

A row's probe gives a bool, or a word for the page. What the device refuses is no.
"""

import importlib
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accel_simulated import DEVICES, device

acc = torch.accelerator
#: How devices refuse: by torch, by its dispatcher, and where a name is absent.
REFUSALS = (
    RuntimeError,
    AttributeError,
    AssertionError,
    ImportError,
    TypeError,
    ValueError,
)


def of(vendor):
    """By row what the page holds: `yes`, `no` or a word."""
    return _answers(ROWS, vendor)


def slow(vendor):
    """The same, with the rows that take long."""
    return _answers({**ROWS, **SLOW}, vendor)


def of_life(vendor):
    """What is offered, what `life` finds wrong, the rows, and the page's other rows: of one process."""
    from simulated_checks import life, offered

    told = [] if vendor == "acme" else offered.tell(vendor)  # nobody makes it
    return {
        "offered": told,
        "problems": life.run_all(vendor),
        "rows": of(vendor),
        "more": list(SLOW),
    }


def _answers(rows, vendor):
    importlib.import_module(DEVICES[vendor].package)
    found = {}
    for row, probe in rows.items():
        try:
            answer = probe(DEVICES[vendor].alias_of or vendor)
        except REFUSALS:
            answer = False
        found[row] = answer if isinstance(answer, str) else "yes" if answer else "no"
    return found


def _streams(kind):
    side = torch.Stream(device=kind)
    with device.held():
        done = side.record_event()
        for _ in range(200):  # of one queue it is never done: that is held
            if done.query():
                return True
            time.sleep(0.001)
    return False


def _late(kind):
    target, source = torch.zeros(2, device=kind), torch.ones(2).pin_memory()
    side = torch.Stream(device=kind)
    with device.held(side), side:
        target.copy_(source, non_blocking=True)
        waits = not side.query()
    side.synchronize()
    return waits and target.sum().item() == 2


def _events(kind):
    # torch's own class where the vendor's module has none.
    event = getattr(getattr(torch, kind), "Event", None) or (
        lambda **how: torch.Event(kind, **how)
    )
    start, end = event(enable_timing=True), event(enable_timing=True)
    start.record()
    device.sleep(2)
    end.record()
    end.synchronize()
    return bool(start.elapsed_time(end) > 1)


def _pinned(kind):
    (batch,) = next(
        iter(
            DataLoader(TensorDataset(torch.arange(4.0)), batch_size=4, pin_memory=True)
        )
    )
    return torch.ones(2).pin_memory().is_pinned() and batch.is_pinned()


def _lstm(kind):
    output, _ = nn.LSTM(2, 3).to(kind)(torch.ones(1, 1, 2, device=kind))
    output.sum().backward()
    return tuple(output.shape) == (1, 1, 3)


def _graphs(kind):
    here = torch.zeros(2, device=kind)
    side, graph = torch.Stream(device=kind), acc.Graph()
    acc.synchronize()
    with side:
        graph.capture_begin()
        here += 1
        graph.capture_end()
    graph.replay()
    graph.replay()
    acc.synchronize()
    return here.tolist() == [2, 2]


def _vendors_graphs(kind):
    module, name = getattr(torch, kind), f"{kind.upper()}Graph"
    return f"`{name}`" if hasattr(module, name) and getattr(module, name)() else "no"


def _vendors_streams(kind):
    module = getattr(torch, kind)
    return issubclass(module.Stream, torch.Stream) and issubclass(
        module.Event, torch.Event
    )


def _ranges(kind):
    module = getattr(torch, kind)
    for name in ("nvtx", "mstx", "cnpx", "brtx"):
        if hasattr(module, name):
            getattr(module, name).range_push("a range")
            getattr(module, name).range_pop()
            return f"`{name}`"
    return "no"


def _collectives(kind):
    import torch.distributed as dist

    name = device.vendor.collective
    if not name:
        return "no"
    dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1)
    try:
        tensor = torch.ones(2, device=kind)
        dist.all_reduce(tensor)
        dist.all_gather([torch.zeros(2, device=kind)], tensor)
    finally:
        dist.destroy_process_group()
    return f"`{name}`"


def _compiled(kind):
    weight = torch.ones(3, device=kind, requires_grad=True)
    torch.compile(lambda t: (t * 2).sum(), backend="inductor")(weight).backward()
    return weight.grad is not None and weight.grad.tolist() == [2, 2, 2]


ROWS = {
    "several devices, and copies between them": lambda kind: (
        torch.ones(2, device=f"{kind}:0").to(f"{kind}:1").sum().item() == 2
    ),
    "streams that run beside one another": _streams,
    "copies that are late, from pinned memory": _late,
    "`record_stream`": lambda kind: (
        torch.ones(2, device=kind).record_stream(torch.Stream(device=kind)) is None
    ),
    "events that measure": _events,
    "a fraction of the memory for this process": lambda kind: (
        getattr(torch, kind).set_per_process_memory_fraction(1.0) is None
    ),
    "a state of random numbers for each device": lambda kind: (
        getattr(torch, kind).get_rng_state(device.count - 1).numel()
    ),
    "pinned memory, and DataLoader's": _pinned,
    "float64": lambda kind: (
        torch.ones(2, dtype=torch.float64, device=kind).sum().item() == 2
    ),
    "LSTM": _lstm,
    "sparse tensors": lambda kind: (
        torch.eye(2, device=kind).to_sparse().to_dense().sum().item() == 2
    ),
    "storages made on the device": lambda kind: (
        torch.UntypedStorage(8, device=kind).device.type == kind
    ),
    "graphs: `torch.accelerator.Graph`": _graphs,
    "graphs: the vendor's class": _vendors_graphs,
    "streams and events: the vendor's classes": _vendors_streams,
    "properties": lambda kind: (
        getattr(torch, kind).get_device_properties(0).total_memory == device.memory
    ),
    "ranges of the vendor's profiler": _ranges,
    "collectives": _collectives,
}
#: What takes seconds in each process: asked when the page is written alone.
SLOW = {"`torch.compile`: inductor": _compiled}
