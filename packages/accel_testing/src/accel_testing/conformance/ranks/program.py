"""Program of each rank of level 3: `python -m accel_testing.conformance.ranks.program FOLDER PART BACKEND`.

`accel_testing.conformance.parts` does the parts and tells of each.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import accel_core
from accel_core import Accelerator
from accel_testing.conformance.claims import require
from accel_testing.conformance.parts import run_parts

__all__ = ["PARTS"]

#: Seconds after which a collective that nobody joins is an error.
_PATIENCE = 20.0


def main(folder: str, part: str, backend: str) -> None:
    """Join the others and run one part, or `all` of them."""

    def begin() -> tuple[Accelerator, Path]:
        accelerator = accel_core.accelerator(backend)
        accelerator.set_device(
            int(os.environ["LOCAL_RANK"]) % accelerator.device_count()
        )
        name = accelerator.communication_backend_name()
        dist.init_process_group(name, timeout=timedelta(seconds=_PATIENCE))
        return accelerator, Path(folder)

    run_parts(Path(folder), begin, PARTS if part == "all" else {part: _LOST[part]})


def _same(given: torch.Tensor, expected: list[float], what: str) -> None:
    found = given.tolist()
    require(found == expected, f"{what} gave {found}; expected {expected}")


def _reductions(a: Accelerator, _: Path) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    ranks = [float(other + 1) for other in range(size)]
    for operation, expected in (
        (dist.ReduceOp.SUM, sum(ranks)), (dist.ReduceOp.MAX, max(ranks)), (dist.ReduceOp.MIN, min(ranks)),
    ):  # fmt: skip
        tensor = torch.full((3,), ranks[rank], device=a.device())
        dist.all_reduce(tensor, op=operation)
        _same(tensor, [expected] * 3, f"all_reduce({operation})")
    tensor = torch.full((3,), ranks[rank], device=a.device())
    dist.reduce(tensor, dst=0)
    if rank == 0:
        _same(tensor, [sum(ranks)] * 3, "reduce to rank 0")
    for dtype in a.supported_dtypes():
        tensor = torch.ones(4, dtype=dtype, device=a.device())
        dist.all_reduce(tensor)
        _same(tensor, [float(size)] * 4, f"all_reduce of {dtype}")


def _exchanges(a: Accelerator, _: Path) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((2,), float(rank), device=a.device())
    parts = [torch.zeros(2, device=a.device()) for _ in range(size)]
    dist.all_gather(parts, mine)
    for other, part in enumerate(parts):
        _same(part, [float(other)] * 2, f"all_gather from rank {other}")
    whole = torch.zeros(2 * size, device=a.device())
    dist.all_gather_into_tensor(whole, mine)
    _same(
        whole,
        [float(other) for other in range(size) for _ in range(2)],
        "all_gather_into_tensor",
    )
    piece = torch.zeros(2, device=a.device())
    dist.reduce_scatter_tensor(piece, torch.arange(2.0 * size, device=a.device()))
    _same(piece, [size * 2.0 * rank, size * (2.0 * rank + 1)], "reduce_scatter_tensor")
    given = torch.full((2,), float(rank + 5), device=a.device())
    dist.broadcast(given, src=size - 1)
    _same(given, [float(size + 4)] * 2, "broadcast from the last rank")
    sent = [
        torch.full((1,), float(rank * 10 + other), device=a.device())
        for other in range(size)
    ]
    got = [torch.zeros(1, device=a.device()) for _ in range(size)]
    dist.all_to_all(got, sent)
    for other, tensor in enumerate(got):
        _same(tensor, [float(other * 10 + rank)], f"all_to_all from rank {other}")
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    require(
        objects == [{"rank": other} for other in range(size)],
        f"all_gather_object gave {objects}",
    )
    dist.barrier()


def _messages(a: Accelerator, _: Path) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    got = torch.zeros(3, device=a.device())
    if rank % 2 == 0 and rank + 1 < size:
        dist.send(torch.arange(3.0, device=a.device()) + rank, rank + 1)
    elif rank % 2:
        dist.recv(got, rank - 1)
        _same(got, [rank - 1.0, float(rank), rank + 1.0], f"recv from rank {rank - 1}")
    dist.barrier()


def _network(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def _expected_gradients(data: torch.Tensor) -> list[torch.Tensor]:
    alone = _network()
    torch.autograd.backward(alone(data).pow(2).mean())
    return [p.grad for p in alone.parameters() if p.grad is not None]


def _data() -> torch.Tensor:
    return torch.randn(
        4 * dist.get_world_size(), 6, generator=torch.Generator().manual_seed(0)
    )


def _close(given: list[torch.Tensor], expected: list[torch.Tensor], what: str) -> None:
    require(
        len(given) == len(expected),
        f"{what}: {len(given)} gradients of {len(expected)}",
    )
    for place, (ours, theirs) in enumerate(zip(given, expected, strict=True)):
        far = float((ours.cpu() - theirs).abs().max())
        require(
            far <= 1e-5,
            f"{what}: gradient {place} is off by {far:.1e} from the whole batch's on the CPU",
        )


def _data_parallel(a: Accelerator, _: Path) -> None:
    rank, size, data = dist.get_rank(), dist.get_world_size(), _data()
    parallel = DistributedDataParallel(_network().to(a.device()))
    torch.autograd.backward(parallel(data[rank::size].to(a.device())).pow(2).mean())
    gradients = [p.grad for p in parallel.module.parameters() if p.grad is not None]
    _close(gradients, _expected_gradients(data), "DistributedDataParallel")


def _fully_sharded(a: Accelerator, _: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, size, data = dist.get_rank(), dist.get_world_size(), _data()
    network = _network().to(a.device())
    fully_shard(network, mesh=init_device_mesh(a.device_type, (size,)))
    torch.autograd.backward(network(data[rank::size].to(a.device())).pow(2).mean())
    gradients: list[Any] = [p.grad for p in network.parameters() if p.grad is not None]
    _close(
        [g.full_tensor() for g in gradients], _expected_gradients(data), "fully_shard"
    )


def _checkpoints(a: Accelerator, folder: Path) -> None:
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save

    place = folder / "checkpoint"
    saved = _network(1).to(a.device())
    save({"model": saved.state_dict()}, checkpoint_id=place)
    dist.barrier()
    resumed = _network(2).to(a.device())
    state = {"model": resumed.state_dict()}
    load(state, checkpoint_id=place)
    resumed.load_state_dict(state["model"])
    for name, tensor in saved.state_dict().items():
        same = torch.equal(tensor.cpu(), resumed.state_dict()[name].cpu())
        require(same, f"{name} is another once it is loaded")


#: What the ranks do together, in this order.
PARTS: dict[str, Callable[[Accelerator, Path], None]] = {
    "reductions": _reductions,
    "exchanges": _exchanges,
    "messages": _messages,
    "data_parallel": _data_parallel,
    "fully_sharded": _fully_sharded,
    "checkpoints": _checkpoints,
}


def _lost(a: Accelerator, _: Path) -> None:
    dist.barrier()
    if dist.get_rank() == dist.get_world_size() - 1:
        os._exit(13)
    began = time.monotonic()
    try:
        tensor = torch.ones(1, device=a.device())
        dist.all_reduce(tensor)
        a.synchronize()
    except Exception:
        return
    require(
        False,
        f"all_reduce without the lost rank gave {tensor.item()} after {time.monotonic() - began:.1f} s",
    )


_LOST = {"lost_rank": _lost}

if __name__ == "__main__":
    main(*sys.argv[1:])
