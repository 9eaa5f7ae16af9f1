"""The staged process group against gloo on CPU tensors: every collective, the same bits. Run by each rank."""

import importlib
import os
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from accel_core import Backend, TorchAccelerator
from accel_simulated import DEVICES
from accel_train.staged import register

#: What gloo reduces on CPU tensors; the others are compared with arithmetic done here.
OF_GLOO = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int32,
    torch.int64, torch.complex64, torch.complex128,
)  # fmt: skip
MOVED = (
    *OF_GLOO, torch.bool, torch.int16, torch.uint16, torch.uint32, torch.uint64,
    torch.float8_e4m3fn,
)  # fmt: skip


class Ranks:
    """This rank, its device, and two groups of all: staged, and gloo for what is expected."""

    def __init__(self, vendor, timeout=60, backend="staged"):
        importlib.import_module(DEVICES[vendor].package)
        self.accelerator = TorchAccelerator(
            Backend(name="x", priority=1, device_type=vendor)
        )
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.index = self.rank % self.accelerator.device_count()
        self.accelerator.set_device(self.index)
        self.device = torch.device(vendor, self.index)
        own = DEVICES[vendor].collective
        assert self.accelerator.communication_backend_name() == (own or "staged")
        register(
            self.accelerator
        )  # which a device with collectives of its own may ask for
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        self.gloo = dist.new_group(backend="gloo")

    def values(self, dtype, *shape, salt=0, rank=None):
        """Other numbers on each rank, the same in every run; with signs, and such that sums round."""
        generator = torch.Generator().manual_seed(
            1000 * salt + (self.rank if rank is None else rank)
        )
        if dtype is torch.bool:
            return torch.randint(0, 2, shape, generator=generator).bool()
        if dtype.is_floating_point or dtype.is_complex:
            kind = dtype if dtype.is_complex else torch.float32
            return torch.randn(shape, generator=generator, dtype=kind).to(dtype)
        bits = torch.iinfo(dtype).bits
        low = 0 if not dtype.is_signed else -(1 << (bits - 2))
        return torch.randint(
            low, 1 << min(62, bits - 2), shape, generator=generator
        ).to(dtype)


@contextmanager
def ranks(vendor, **options):
    here = Ranks(vendor, **options)
    try:
        yield here
    finally:
        dist.destroy_process_group()


def same(made, expected):
    """Whether the bytes are equal."""
    made = made.detach().cpu()
    return (
        made.dtype == expected.dtype
        and made.shape == expected.shape
        and raw(made) == raw(expected)
    )


def raw(tensor):
    row = torch.empty(
        tensor.numel(), dtype=tensor.dtype
    )  # a view of one element keeps a stride
    return (
        bytes(row.copy_(tensor.flatten()).view(torch.uint8).tolist())
        if tensor.numel()
        else b""
    )


# What is compared: each takes tensors on a device and a group, and gives the tensors that it wrote


def broadcast(here, at, dtype, group, shape):
    tensor = at(here.values(dtype, *shape))
    dist.broadcast(tensor, src=1, group=group)
    return [tensor]


def all_gather(here, at, dtype, group, shape):
    parts = [at(torch.zeros(shape).to(dtype)) for _ in range(here.size)]
    dist.all_gather(parts, at(here.values(dtype, *shape)), group=group)
    return parts


def all_gather_into(here, at, dtype, group, shape):
    whole = at(torch.zeros((here.size * shape[0], *shape[1:])).to(dtype))
    dist.all_gather_into_tensor(whole, at(here.values(dtype, *shape)), group=group)
    return [whole]


def gather(here, at, dtype, group, shape):
    parts = (
        [at(torch.zeros(shape).to(dtype)) for _ in range(here.size)]
        if here.rank == 1
        else None
    )
    dist.gather(at(here.values(dtype, *shape)), parts, dst=1, group=group)
    return parts or []


def scatter(here, at, dtype, group, shape):
    parts = (
        [at(here.values(dtype, *shape, salt=n)) for n in range(here.size)]
        if here.rank == 1
        else None
    )
    mine = at(torch.zeros(shape).to(dtype))
    dist.scatter(mine, parts, src=1, group=group)
    return [mine]


def all_to_all_single(here, at, dtype, group, shape):
    made = at(torch.zeros((here.size * shape[0], *shape[1:])).to(dtype))
    dist.all_to_all_single(
        made, at(here.values(dtype, here.size * shape[0], *shape[1:])), group=group
    )
    return [made]


def all_to_all_uneven(here, at, dtype, group, shape):
    # Rank s sends s + d rows to rank d: some of them none.
    sent = [here.rank + other for other in range(here.size)]
    made = at(torch.zeros((sum(sent), *shape[1:])).to(dtype))
    given = at(here.values(dtype, sum(sent), *shape[1:]))
    dist.all_to_all_single(made, given, sent, sent, group=group)
    return [made]


MOVES = (
    broadcast, all_gather, all_gather_into, gather, scatter, all_to_all_single, all_to_all_uneven,
)  # fmt: skip


def layouts(device):
    """The same values in memory otherwise: as they are, transposed, with gaps."""

    def transposed(tensor):
        return tensor.to(device).transpose(0, -1).contiguous().transpose(0, -1)

    def gaps(tensor):
        wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype, device=device)
        part = wide[..., 1]
        part.copy_(tensor.to(device))
        return part

    return {
        "contiguous": lambda t: t.to(device),
        "transposed": transposed,
        "gaps": gaps,
    }


def every_collective(here):
    """All that moves: each type, layout and shape; gives how many comparisons there were."""
    count = 0
    ways = {**layouts(here.device), "on the host": lambda t: t}
    for shape in ((3, 4), (0, 4), (1,)):
        for case in MOVES:
            for dtype in MOVED:
                # gloo lacks types that are compared as bytes: the expected ones travel as such.
                group = here.gloo if dtype in OF_GLOO and not dtype.is_complex else None
                expected = case(here, ways["on the host"], dtype, group, shape)
                for name, at in ways.items():
                    for one, other in zip(
                        case(here, at, dtype, None, shape), expected, strict=True
                    ):
                        assert same(one, other), (
                            f"{case.__name__} {dtype} {shape} {name}"
                        )
                        count += 1
    _lists(here)
    _messages(here)
    _objects(here)
    _functional(here)
    return count


def _lists(here):
    """Lists of tensors, sizes that differ, coalesced calls, and works that are waited for later."""
    rank, size, device = here.rank, here.size, here.device
    parts = [torch.zeros(n + 1, device=device) for n in range(size)]
    dist.all_gather(parts, torch.full((rank + 1,), float(rank), device=device))
    assert [p.tolist() for p in parts] == [[float(n)] * (n + 1) for n in range(size)]
    mine = torch.zeros(rank + 1, dtype=torch.int16, device=device)
    dist.reduce_scatter(
        mine,
        [
            torch.full((n + 1,), rank + n, dtype=torch.int16, device=device)
            for n in range(size)
        ],
    )
    assert mine.tolist() == [sum(range(size)) + size * rank] * (rank + 1)
    rows = [
        [torch.zeros(n + 1, device=device), torch.zeros(2, device=device)]
        for n in range(size)
    ]
    dist.all_gather_coalesced(
        rows,
        [
            torch.full((rank + 1,), float(rank), device=device),
            torch.full((2,), 10.0 + rank, device=device),
        ],
    )
    assert [[part.tolist() for part in row] for row in rows] == [
        [[float(n)] * (n + 1), [10.0 + n] * 2] for n in range(size)
    ]
    given = [
        torch.full((rank + n + 1,), 10 * rank + n, device=device) for n in range(size)
    ]
    made = [
        torch.zeros(rank + n + 1, dtype=torch.int64, device=device) for n in range(size)
    ]
    dist.all_to_all(made, given)
    assert [m.tolist() for m in made] == [
        [10 * n + rank] * (rank + n + 1) for n in range(size)
    ]
    several = [torch.full((n + 1,), float(rank + n), device=device) for n in range(3)]
    several.append(torch.full((2,), rank + 1, dtype=torch.int32, device=device))
    with dist.distributed_c10d._coalescing_manager(
        device=device, async_ops=True
    ) as work:
        for tensor in several:
            dist.all_reduce(tensor)
    work.wait()
    total = sum(range(size))
    assert [t.tolist() for t in several] == [
        [float(total + size * n)] * (n + 1) for n in range(3)
    ] + [[total + size] * 2]
    outputs = [torch.zeros(size * n, device=device) for n in (1, 2)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as work:
        for output, n in zip(outputs, (1, 2), strict=True):
            dist.all_gather_into_tensor(
                output, torch.full((n,), float(rank), device=device)
            )
    work.wait()
    assert [o.tolist() for o in outputs] == [
        [float(r) for r in range(size) for _ in range(n)] for n in (1, 2)
    ]
    outputs = [torch.zeros(n, device=device) for n in (1, 2)]
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as work:
        for output, n in zip(outputs, (1, 2), strict=True):
            dist.reduce_scatter_tensor(
                output, torch.arange(float(size * n), device=device)
            )
    work.wait()
    assert [o.tolist() for o in outputs] == [
        [float(size * (rank * n + k)) for k in range(n)] for n in (1, 2)
    ]


def _messages(here):
    """Sends and receives: both ways at once, to itself, from anyone, with tags, and alongside collectives."""
    rank, size, device = here.rank, here.size, here.device
    right, left = (rank + 1) % size, (rank - 1) % size
    given, made = (
        torch.full((5,), float(rank), device=device),
        torch.zeros(5, device=device),
    )
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, made, left), dist.P2POp(dist.isend, given, right)]
    )
    for work in works:
        work.wait()
    assert made.tolist() == [float(left)] * 5
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.irecv, made, rank), dist.P2POp(dist.isend, given, rank)]
    )
    for work in works:
        work.wait()
    assert made.tolist() == [float(rank)] * 5
    made = torch.zeros(2, 2, dtype=torch.bool, device=device).t()
    if rank == 0:
        got = [dist.recv(made) for _ in range(size - 1)]
        assert sorted(got) == list(range(1, size)) and made.all()
    else:
        dist.send(torch.ones(2, 2, dtype=torch.bool, device=device), 0)
    # The receive is posted first, and what it waits for is sent after a collective.
    late = torch.zeros(1, device=device)
    work = dist.irecv(late, left, tag=7)
    total = torch.ones(1, device=device)
    dist.all_reduce(total, async_op=True).wait()
    assert total.item() == size and not late.item()
    other = dist.isend(torch.full((1,), 3.0, device=device), right, tag=7)
    work.wait()
    other.wait()
    assert late.item() == 3.0 and work.is_completed()


def _objects(here):
    objects = [None] * here.size
    dist.all_gather_object(objects, {"rank": here.rank})
    assert objects == [{"rank": n} for n in range(here.size)]
    objects = [here.rank, "x"]
    dist.broadcast_object_list(objects, src=1, device=here.device)
    assert objects == [1, "x"]


def _functional(here):
    """The collectives that torch.compile and DTensor use, which come from C++."""
    from torch.distributed import _functional_collectives as functional

    group, rank, size, device = dist.group.WORLD, here.rank, here.size, here.device
    one = torch.full((size,), float(rank), device=device)
    assert (
        functional.all_reduce(one, "sum", group).tolist()
        == [float(sum(range(size)))] * size
    )
    gathered = functional.all_gather_tensor(one, 0, group).tolist()
    assert gathered == [float(n) for n in range(size) for _ in range(size)]
    assert functional.reduce_scatter_tensor(one, "sum", 0, group).tolist() == [
        float(sum(range(size)))
    ]
    assert functional.all_to_all_single(one, None, None, group).tolist() == [
        float(n) for n in range(size)
    ]
    assert functional.broadcast(one, 1, group).tolist() == [1.0] * size
