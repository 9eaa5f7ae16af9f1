"""How the staged process group lives: order, overlap, several at once, faults, and its end."""

import threading
from datetime import timedelta

import torch
import torch.distributed as dist

from simulated_checks.staged import Ranks, every_collective, ranks
from simulated_checks.staged_reductions import reductions
from simulated_checks.staged_training import data_parallel, uneven


def in_order(here):
    """Asynchronous calls: in order though nothing waits between them, beside the device's own work."""
    device, size = here.device, here.size
    tensor = torch.ones(1 << 16, device=device)
    works = [
        dist.all_reduce(tensor, async_op=True) for _ in range(5)
    ]  # each needs the one before
    works[-1].wait()
    assert tensor.eq(float(size**5)).all()
    assert all(work.is_completed() and work.is_success() for work in works)
    assert works[0].get_future().wait()[0].data_ptr() == tensor.data_ptr()
    small = torch.ones(2, device=device)
    pending = dist.all_reduce(small, async_op=True)
    doubled = pending.get_future().then(lambda done: done.value()[0] * 2)
    assert doubled.wait().tolist() == [2.0 * size] * 2
    # Late on the device when it is given away: the copy waits for the work before it.
    late = torch.zeros(1 << 16, device=device)
    for _ in range(50):
        late += 1
    dist.all_reduce(late, async_op=True).wait()
    assert late.eq(50.0 * size).all()
    weight = torch.ones(3, device=device, requires_grad=True)
    product = weight * weight
    dist.broadcast(
        weight, src=0
    )  # as NCCL's: autograd takes it for no change by the program
    product.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [2.0] * 3
    # Two groups of the same kind at once, and one of a single rank.
    other, alone = (
        dist.new_group(),
        [dist.new_group([n]) for n in range(size)][here.rank],
    )
    both = [torch.full((1 << 14,), 1.0 + n, device=device) for n in range(2)]
    pair = [
        dist.all_reduce(both[0], async_op=True),
        dist.all_reduce(both[1], group=other, async_op=True),
    ]
    dist.all_reduce(small, group=alone)
    for work in reversed(pair):
        work.wait()
    assert [t[0].item() for t in both] == [1.0 * size, 2.0 * size]
    dist.destroy_process_group(other)
    return _threads()


def _threads():
    return sum(
        thread.name.startswith("accel-staged") for thread in threading.enumerate()
    )


def everything(vendor):
    """Each check in one group, which is destroyed then: it leaves no thread, and refuses what comes."""
    with ranks(vendor) as here:
        told = {
            "moved": every_collective(here),
            "reduced": reductions(here),
            "threads": in_order(here),
            "refused": refused(here),
            "trained": data_parallel(here),
            "uneven": uneven(here),
        }
        group = dist.group.WORLD
    try:
        group.allreduce([torch.ones(2, device=here.device)])
    except RuntimeError as error:
        return {**told, "left": _threads(), "late": str(error)}
    raise AssertionError("a destroyed group went on")


def lost(vendor):
    """Rank 1 does not come to a collective: rank 0's error says so, whether it waits at once or later."""
    here = Ranks(vendor, timeout=3)
    said = []
    tensor = torch.ones(4, device=here.device)
    if here.rank == 0:
        for asynchronous in (True, False):
            try:
                work = dist.all_reduce(tensor, async_op=asynchronous)
                if work is not None:
                    work.wait()
            except RuntimeError as error:
                said.append([type(error).__name__, str(error)])
        dist.distributed_c10d._get_default_store().set("seen", "")
    else:
        dist.distributed_c10d._get_default_store().wait(["seen"], timedelta(seconds=60))
    dist.destroy_process_group()
    return {"said": said}


def refused(here):
    """What no group can do, and what this one does not, said before anything is sent."""
    said = {}
    device = here.device
    wrong = {
        "sizes": lambda: dist.group.WORLD._allgather_base(
            torch.ones(here.size + 1, device=device), torch.ones(1, device=device)
        ),
        "splits": lambda: dist.all_to_all_single(
            torch.ones(2, device=device),
            torch.ones(2, device=device),
            [2] * here.size,
            [1] * here.size,
        ),
        "sparse": lambda: dist.group.WORLD.allreduce([torch.ones(2, 2).to_sparse()]),
    }
    for name, call in wrong.items():
        try:
            call()
        except (ValueError, NotImplementedError) as error:
            said[name] = f"{type(error).__name__}: {error}"
    dist.barrier()
    return said
