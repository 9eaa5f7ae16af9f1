"""The program of each rank in level 3, started with the arguments FOLDER PART BACKEND.

`accel_testing.conformance.parts` runs the parts and reports on each.
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
from accel_testing.conformance.claims import BrokenPromise, require
from accel_testing.conformance.parts import run_parts

__all__ = ["PARTS"]

#: The timeout, in seconds, of a collective that a rank does not join.
_COLLECTIVE_TIMEOUT = 20.0


def main(folder: str, part: str, backend: str) -> None:
    """Join the other ranks, and run one part, or `all` parts."""

    def begin() -> tuple[Accelerator, Path]:
        accelerator = accel_core.accelerator(backend)
        accelerator.set_device(
            int(os.environ["LOCAL_RANK"]) % accelerator.device_count()
        )
        name = accelerator.communication_backend_name()
        dist.init_process_group(name, timeout=timedelta(seconds=_COLLECTIVE_TIMEOUT))
        return accelerator, Path(folder)

    run_parts(
        Path(folder), begin, PARTS if part == "all" else {part: _LOST_RANK_PARTS[part]}
    )


def _require_values(
    tensor: torch.Tensor, expected: list[float], operation: str
) -> None:
    """Require that the tensor has the expected values after the operation."""
    values = tensor.tolist()
    require(values == expected, f"{operation} returned {values}; expected {expected}")


def _reduce(accelerator: Accelerator, _: Path) -> None:
    """Reduce tensors with each operation, and in each type that the accelerator supports."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ranks = [float(other + 1) for other in range(size)]
    for operation, expected in (
        (dist.ReduceOp.SUM, sum(ranks)), (dist.ReduceOp.MAX, max(ranks)), (dist.ReduceOp.MIN, min(ranks)),
    ):  # fmt: skip
        tensor = torch.full((3,), ranks[rank], device=accelerator.device())
        dist.all_reduce(tensor, op=operation)
        _require_values(tensor, [expected] * 3, f"all_reduce({operation})")
    tensor = torch.full((3,), ranks[rank], device=accelerator.device())
    dist.reduce(tensor, dst=0)
    if rank == 0:
        _require_values(tensor, [sum(ranks)] * 3, "reduce to rank 0")
    for dtype in accelerator.supported_dtypes():
        tensor = torch.ones(4, dtype=dtype, device=accelerator.device())
        dist.all_reduce(tensor)
        _require_values(tensor, [float(size)] * 4, f"all_reduce of {dtype}")


def _exchange(accelerator: Accelerator, _: Path) -> None:
    """Gather, scatter, broadcast and exchange tensors and objects among all ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    device = accelerator.device()
    own = torch.full((2,), float(rank), device=device)
    gathered = [torch.zeros(2, device=device) for _ in range(size)]
    dist.all_gather(gathered, own)
    for other, part in enumerate(gathered):
        _require_values(part, [float(other)] * 2, f"all_gather from rank {other}")
    joined = torch.zeros(2 * size, device=device)
    dist.all_gather_into_tensor(joined, own)
    expected = [float(other) for other in range(size) for _ in range(2)]
    _require_values(joined, expected, "all_gather_into_tensor")
    part = torch.zeros(2, device=device)
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * size, device=device))
    expected = [size * 2.0 * rank, size * (2.0 * rank + 1)]
    _require_values(part, expected, "reduce_scatter_tensor")
    broadcast = torch.full((2,), float(rank + 5), device=device)
    dist.broadcast(broadcast, src=size - 1)
    _require_values(broadcast, [float(size + 4)] * 2, "broadcast from the last rank")
    sent = [
        torch.full((1,), float(rank * 10 + other), device=device)
        for other in range(size)
    ]
    received = [torch.zeros(1, device=device) for _ in range(size)]
    dist.all_to_all(received, sent)
    for other, tensor in enumerate(received):
        expected = [float(other * 10 + rank)]
        _require_values(tensor, expected, f"all_to_all from rank {other}")
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    require(
        objects == [{"rank": other} for other in range(size)],
        f"all_gather_object returned {objects}",
    )
    dist.barrier()


def _send_and_receive(accelerator: Accelerator, _: Path) -> None:
    """Send a tensor from each even rank to the next odd rank."""
    rank, size = dist.get_rank(), dist.get_world_size()
    received = torch.zeros(3, device=accelerator.device())
    if rank % 2 == 0 and rank + 1 < size:
        dist.send(torch.arange(3.0, device=accelerator.device()) + rank, rank + 1)
    elif rank % 2:
        dist.recv(received, rank - 1)
        _require_values(
            received,
            [rank - 1.0, float(rank), rank + 1.0],
            f"recv from rank {rank - 1}",
        )
    dist.barrier()


def _network(seed: int = 1) -> nn.Module:
    """Return a small network whose parameters depend on the seed."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def _expected_gradients(data: torch.Tensor) -> list[torch.Tensor]:
    """Return the gradients of the whole batch in one process on the CPU."""
    network = _network()
    torch.autograd.backward(network(data).pow(2).mean())
    return [
        parameter.grad
        for parameter in network.parameters()
        if parameter.grad is not None
    ]


def _make_data() -> torch.Tensor:
    """Return the whole batch on the CPU, with four samples per rank."""
    return torch.randn(
        4 * dist.get_world_size(), 6, generator=torch.Generator().manual_seed(0)
    )


def _require_close(
    gradients: list[torch.Tensor], expected: list[torch.Tensor], name: str
) -> None:
    """Require that the gradients agree with those of the whole batch within 1e-5."""
    require(
        len(gradients) == len(expected),
        f"{name} computed {len(gradients)} of {len(expected)} gradients",
    )
    for number, (gradient, reference) in enumerate(
        zip(gradients, expected, strict=True)
    ):
        error = float((gradient.cpu() - reference).abs().max())
        require(
            error <= 1e-5,
            f"{name}: gradient {number} differs by {error:.1e} from the whole batch's gradient on the CPU",
        )


def _train_data_parallel(accelerator: Accelerator, _: Path) -> None:
    """Compute gradients with DistributedDataParallel; each rank uses a part of the batch."""
    rank, size, data = dist.get_rank(), dist.get_world_size(), _make_data()
    parallel = DistributedDataParallel(_network().to(accelerator.device()))
    torch.autograd.backward(
        parallel(data[rank::size].to(accelerator.device())).pow(2).mean()
    )
    gradients = [
        parameter.grad
        for parameter in parallel.module.parameters()
        if parameter.grad is not None
    ]
    _require_close(gradients, _expected_gradients(data), "DistributedDataParallel")


def _train_fully_sharded(accelerator: Accelerator, _: Path) -> None:
    """Compute gradients with FSDP2; each rank uses a part of the batch."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, size, data = dist.get_rank(), dist.get_world_size(), _make_data()
    network = _network().to(accelerator.device())
    fully_shard(network, mesh=init_device_mesh(accelerator.device_type, (size,)))
    torch.autograd.backward(
        network(data[rank::size].to(accelerator.device())).pow(2).mean()
    )
    gradients: list[Any] = [
        parameter.grad
        for parameter in network.parameters()
        if parameter.grad is not None
    ]
    _require_close(
        [gradient.full_tensor() for gradient in gradients],
        _expected_gradients(data),
        "fully_shard",
    )


def _save_and_load_checkpoint(accelerator: Accelerator, folder: Path) -> None:
    """Save a distributed checkpoint, load it into another network, and require equal parameters."""
    from torch.distributed.checkpoint.state_dict_loader import load
    from torch.distributed.checkpoint.state_dict_saver import save

    checkpoint = folder / "checkpoint"
    saved = _network(1).to(accelerator.device())
    save({"model": saved.state_dict()}, checkpoint_id=checkpoint)
    dist.barrier()
    resumed = _network(2).to(accelerator.device())
    state = {"model": resumed.state_dict()}
    load(state, checkpoint_id=checkpoint)
    resumed.load_state_dict(state["model"])
    for name, tensor in saved.state_dict().items():
        is_same = torch.equal(tensor.cpu(), resumed.state_dict()[name].cpu())
        require(is_same, f"{name} has different values after loading")


#: The parts, in the order in which they run.
PARTS: dict[str, Callable[[Accelerator, Path], None]] = {
    "reductions": _reduce,
    "exchanges": _exchange,
    "messages": _send_and_receive,
    "data_parallel": _train_data_parallel,
    "fully_sharded": _train_fully_sharded,
    "checkpoints": _save_and_load_checkpoint,
}


def _lose_rank(accelerator: Accelerator, _: Path) -> None:
    """End the last rank, and require that a collective in the other ranks raises an error."""
    dist.barrier()
    if dist.get_rank() == dist.get_world_size() - 1:
        os._exit(13)
    began = time.monotonic()
    try:
        tensor = torch.ones(1, device=accelerator.device())
        dist.all_reduce(tensor)
        accelerator.synchronize()
    except Exception:
        return
    raise BrokenPromise(
        f"all_reduce without the lost rank returned {tensor.item()} after {time.monotonic() - began:.1f} s"
    )


_LOST_RANK_PARTS = {"lost_rank": _lose_rank}

if __name__ == "__main__":
    main(*sys.argv[1:])
